package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/test/history"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// pluginLoad are pods with a plugin's devices that come and go. Each container locks its devices for as long as it
// lives, and reports them.
type pluginLoad struct {
	*rig
	newPod        func(random *rand.Rand, name string) *v1.Pod
	device        func(from types.ResourceName) string
	reports, held string
	workers       sync.WaitGroup

	mu    sync.Mutex
	given map[string][]string // devices by pods' UIDs, as the scheduler assigned them
}

// startPluginLoad starts eight pods at a time until ctx ends; all that is random follows from the seed. device is what
// test/images/app calls what was assigned, without the node, and "" for what is no device.
func (r *rig) startPluginLoad(ctx context.Context, seed uint64, newPod func(*rand.Rand, string) *v1.Pod,
	device func(types.ResourceName) string) *pluginLoad {
	r.Helper()
	l := &pluginLoad{rig: r, newPod: newPod, device: device, reports: r.TempDir(), held: r.TempDir(),
		given: map[string][]string{}}
	l.watch()
	for i := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := l.life(random, fmt.Sprintf("w%d-%d", i, n)); err != nil {
					r.Errorf("load: %v", err)
					return
				}
			}
		})
	}
	return l
}

// watch notes what every pod is given.
func (l *pluginLoad) watch() {
	l.Helper()
	ctx, cancel := context.WithCancel(l.ctx)
	w, err := kube.CoreV1().Pods(l.ns).Watch(ctx, metav1.ListOptions{})
	l.check(err)
	ended := make(chan struct{})
	l.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			p, ok := e.Object.(*v1.Pod)
			if !ok || e.Type == watch.Deleted || p.Spec.NodeName == "" {
				continue
			}
			info, err := assignment.Granted(p.Annotations, string(p.UID), p.Spec.NodeName)
			if err != nil {
				l.Errorf("pod %s: %v", p.Name, err)
				continue
			}
			var devices []string
			for _, from := range info.RunningContainers["main"].AllocateFrom {
				if device := l.device(from); device != "" {
					devices = append(devices, p.Spec.NodeName+"-"+device)
				}
			}
			slices.Sort(devices)
			l.mu.Lock()
			l.given[string(p.UID)] = devices
			l.mu.Unlock()
		}
	}()
}

// life is that of one pod: it ends by itself, or is deleted at any time, also by force: its container lives a
// while longer then than its object.
func (l *pluginLoad) life(random *rand.Rand, name string) error {
	p := l.newPod(random, name)
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	lifetime, upTo := "100ms", 30*time.Second
	if random.IntN(2) == 0 {
		lifetime, upTo = "1h", time.Duration(random.IntN(4000))*time.Millisecond
	}
	main := &p.Spec.Containers[0]
	main.Args = []string{"witness", "/reports", "/held", lifetime}
	field := func(name, path string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
	}
	main.Env = []v1.EnvVar{field("POD_UID", "metadata.uid"), field("NODE", "spec.nodeName")}
	for name, path := range map[string]string{"reports": l.reports, "held": l.held} {
		p.Spec.Volumes = append(p.Spec.Volumes,
			v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}})
		main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	pods := kube.CoreV1().Pods(l.ns)
	if _, err := pods.Create(l.ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	end := time.Now().Add(upTo)
	const often = 100 * time.Millisecond
	err := wait.PollUntilContextCancel(l.ctx, often, true, func(ctx context.Context) (bool, error) {
		live, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ended := live.Status.Phase == v1.PodSucceeded || live.Status.Phase == v1.PodFailed
		return ended || time.Now().After(end), nil
	})
	options := metav1.DeleteOptions{}
	if random.IntN(2) == 0 {
		options.GracePeriodSeconds = new(int64)
	}
	if err == nil {
		err = pods.Delete(l.ctx, name, options)
	}
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(l.ctx, often, true, func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// finish waits for the workers, and compares what the containers have reported with what their pods were given.
func (l *pluginLoad) finish() {
	l.Helper()
	l.workers.Wait()
	conflict, err := os.ReadFile(filepath.Join(l.held, "CONFLICT"))
	if !errors.Is(err, fs.ErrNotExist) {
		l.Errorf("devices were given twice: %v\n%s", err, conflict)
	}
	files, err := filepath.Glob(filepath.Join(l.reports, "*.json"))
	l.check(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, file := range files {
		data, err := os.ReadFile(file)
		l.check(err)
		var in history.Inside
		l.check(json.Unmarshal(data, &in))
		var has []string
		for _, d := range in.Devices {
			has = append(has, d.Slot)
		}
		slices.Sort(has)
		if given := l.given[in.PodUID]; len(has) == 0 || !slices.Equal(has, given) {
			l.Errorf("a container of pod %s has devices %q, and was given %q", in.PodUID, has, given)
		}
	}
	l.Logf("%d pods were given devices, %d containers have reported theirs", len(l.given), len(files))
	if len(files) == 0 {
		l.Error("no container has reported its devices")
	}
}
