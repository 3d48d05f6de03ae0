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
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/history"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// widgetLoad are pods with widgets that come and go. Each container locks its widgets for as long as it lives, and
// reports them.
type widgetLoad struct {
	*rig
	reports, held string
	workers       sync.WaitGroup

	mu    sync.Mutex
	given map[string][]string // widgets by pods' UIDs, as the scheduler assigned them
}

// startWidgetLoad starts more pods at a time than there are widgets for. They follow from the seed, until ctx ends.
func (r *rig) startWidgetLoad(ctx context.Context, seed uint64) *widgetLoad {
	r.Helper()
	l := &widgetLoad{rig: r, reports: r.TempDir(), held: r.TempDir(), given: map[string][]string{}}
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
func (l *widgetLoad) watch() {
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
			var widgets []string
			for _, from := range info.RunningContainers["main"].AllocateFrom {
				var board, widget int
				if _, err := fmt.Sscanf(string(from), "resource/group/board/%d/widget/%d/cards", &board,
					&widget); err == nil {
					widgets = append(widgets, fmt.Sprintf("%s-widget-%d-%d", p.Spec.NodeName, board, widget))
				}
			}
			slices.Sort(widgets)
			l.mu.Lock()
			l.given[string(p.UID)] = widgets
			l.mu.Unlock()
		}
	}()
}

// life is that of one pod: it ends by itself, or is deleted at any time.
func (l *widgetLoad) life(random *rand.Rand, name string) error {
	p := widgetPod(name, []string{"", nodeA, nodeB}[random.IntN(3)], 1+random.IntN(2))
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
	if err == nil {
		err = pods.Delete(l.ctx, name, metav1.DeleteOptions{})
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
func (l *widgetLoad) finish() {
	l.Helper()
	l.workers.Wait()
	conflict, err := os.ReadFile(filepath.Join(l.held, "CONFLICT"))
	if !errors.Is(err, fs.ErrNotExist) {
		l.Errorf("widgets were given twice: %v\n%s", err, conflict)
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
			l.Errorf("a container of pod %s has widgets %q, and was given %q", in.PodUID, has, given)
		}
	}
	l.Logf("%d pods were given widgets, %d containers have reported theirs", len(l.given), len(files))
	if len(files) == 0 {
		l.Error("no container has reported its widgets")
	}
}

// A plugin's servers are killed again and again while pods come and go: no container has a widget that its pod was
// not given, or that another one has, none is lost, and kubecri and the scheduler stay.
func TestKilledPluginServers(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 20
	}
	r := newRig(t)
	s := r.serveWidgets("Go")
	before := pids(r)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	const seed = 1
	l := r.startWidgetLoad(ctx, seed)
	random := rand.New(rand.NewPCG(seed, 1<<32))
	programs := [][2]string{{widgetScheduler, ""}, {widgetDevice, nodeA}, {widgetDevice, nodeB}}
	for i := 0; i < kills && !t.Failed(); i++ {
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond) // any moment
		p := programs[random.IntN(len(programs))]
		r.check(shared.Restart(p[0], p[1]))
	}
	cancel()
	l.finish()
	if after := pids(r); before != after {
		t.Errorf("processes were %s, and are %s", before, after)
	}
	r.deletePods()
	var all []string
	for i, node := range []string{nodeA, nodeA, nodeB, nodeB} {
		r.create(widgetPod(fmt.Sprint("last-", i), node, 2))
	}
	for i, node := range []string{nodeA, nodeA, nodeB, nodeB} {
		for _, w := range r.widgets(fmt.Sprint("last-", i), 2) {
			all = append(all, node+" "+w)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != 8 {
		t.Errorf("of 8 widgets the last pods have %q", all)
	}
	s.awaitReadyz(cluster.Scheduler, "", "200")
}

func pids(r *rig) string {
	r.Helper()
	var all []string
	for _, p := range [][2]string{{cluster.Scheduler, ""}, {cluster.Kubecri, nodeA}, {cluster.Kubecri, nodeB}} {
		pid, err := shared.PID(p[0], p[1])
		r.check(err)
		all = append(all, fmt.Sprint(p[0], " ", pid))
	}
	return strings.Join(all, ", ")
}
