package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/test/history"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// chaosLoad is a load whose pods come and go while anything may be away, and whose
// containers report what devices they have.
type chaosLoad struct {
	*load
	reports string
	// rough has pods without a grace period, and deletes some by force.
	rough bool
}

// startChaosLoad makes two devices of two slots each, and starts the load, of which it records what
// etcd has.
func startChaosLoad(r *rig, name string, seed uint64) *chaosLoad {
	r.Helper()
	l := newChaosLoad(r, name, r.chaosClasses(), nil)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:2379"}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return shared.Dial(ctx, "", "tcp", address)
		})}})
	r.check(err)
	r.Cleanup(func() { etcd.Close() })
	l.recorder, err = history.RecordEtcd(r.ctx, etcd, r.ns)
	r.check(err)
	l.begin(seed)
	return l
}

// chaosClasses makes the PriorityClasses of a load's pods.
func (r *rig) chaosClasses() []string { return []string{r.priorityClass(100), r.priorityClass(1000)} }

// newChaosLoad makes two devices of two slots each. begin starts the load.
func newChaosLoad(r *rig, name string, classes []string, change func(*akriv0.Configuration)) *chaosLoad {
	r.Helper()
	ids := []string{name + "0", name + "1"}
	l := &chaosLoad{reports: r.TempDir(), load: &load{rig: r, name: name, slots: 2 * len(ids), dir: r.TempDir(),
		classes: classes}}
	l.debugEcho(name, 2, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(
			"descriptions: [%s]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", strings.Join(ids, ", "), l.dir)
		if change != nil {
			change(c)
		}
	}, ids...)
	return l
}

// begin starts two workers for each slot. Each one's pods follow from the seed.
func (l *chaosLoad) begin(seed uint64) {
	ctx, cancel := context.WithCancel(l.ctx)
	l.cancel = cancel
	l.Cleanup(l.stop)
	for i := range 2 * l.slots {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.life(ctx, random, fmt.Sprintf("%s-%d-%d", l.name, i, n))
			}
		})
	}
}

// life is that of one pod: it ends by itself, is deleted at any time, or preempted.
// Whatever the API server says, the pod is gone in the end, or ctx is done.
func (l *chaosLoad) life(ctx context.Context, random *rand.Rand, name string) {
	p := newPod(name, []string{"", nodeA, nodeB}[random.IntN(3)], map[string]int64{l.name: 1 + random.Int64N(2)})
	p.Spec.PriorityClassName = l.classes[random.IntN(len(l.classes))]
	lifetime, upTo := "1h", time.Duration(random.IntN(8000))*time.Millisecond
	switch random.IntN(3) {
	case 0:
		p.Spec.RestartPolicy, lifetime = v1.RestartPolicyNever, "100ms"
	case 1:
		lifetime = "1s" // and again, in the same pod
	}
	var options metav1.DeleteOptions
	if l.rough {
		switch random.IntN(3) {
		case 0:
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		case 1:
			options.GracePeriodSeconds = ptr.To[int64](0)
		}
	}
	main := &p.Spec.Containers[0]
	main.Args = []string{"witness", "/reports", "/slots", lifetime}
	main.Env = []v1.EnvVar{{Name: "CONTAINER", Value: main.Name},
		{Name: "POD_UID", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}
	directory := v1.HostPathDirectory
	p.Spec.Volumes = []v1.Volume{{Name: "reports", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: l.reports, Type: &directory}}}}
	main.VolumeMounts = []v1.VolumeMount{{Name: "reports", MountPath: "/reports"}}

	pods := kube.CoreV1().Pods(l.ns)
	l.insist(ctx, func() bool {
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err) // by a try that was not answered
	})
	end := time.Now().Add(upTo)
	l.insist(ctx, func() bool {
		live, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err) // it was preempted
		}
		ended := live.Status.Phase == v1.PodSucceeded || live.Status.Phase == v1.PodFailed
		return ended || live.DeletionTimestamp != nil || time.Now().After(end)
	})
	l.insist(ctx, func() bool {
		err := pods.Delete(ctx, name, options)
		return err == nil || apierrors.IsNotFound(err)
	})
	l.insist(ctx, func() bool {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// insist tries until it is done, or ctx is.
func (l *chaosLoad) insist(ctx context.Context, done func() bool) {
	_ = l.poll(ctx, func() (bool, error) { return done(), nil })
}

// finish judges all that has happened, and what the containers have reported.
func (l *chaosLoad) finish() {
	l.Helper()
	l.load.finish(history.Rules{Doubles: true}) // a bind in a frozen API server may come late
	files, err := filepath.Glob(filepath.Join(l.reports, "*.json"))
	l.check(err)
	var found []history.Inside
	for _, file := range files {
		data, err := os.ReadFile(file)
		l.check(err)
		var in history.Inside
		l.check(json.Unmarshal(data, &in))
		found = append(found, in)
	}
	events, err := l.recorder.Events(l.ctx)
	l.check(err)
	l.Logf("%d containers have reported their devices", len(found))
	if len(found) == 0 {
		l.Error("no container has reported its devices")
	}
	for _, wrong := range history.CheckInside(events, found) {
		l.Error(wrong)
	}
}
