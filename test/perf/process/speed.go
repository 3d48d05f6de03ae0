package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// speed is how fast pods were bound, from the first one's creation to the last one's
// binding, and the CPU seconds that it took.
type speed struct {
	pods    float64
	seconds float64
	cpu     usage
}

// usage is CPU seconds; the scheduler's are with those of its plugin's process.
type usage struct{ scheduler, api, etcd float64 }

// profileSeconds is less than a round takes.
const profileSeconds = 4

// bound selects the pods that have a node.
var bound = fields.OneTermNotEqualSelector("spec.nodeName", "")

// startForSpeed starts the scheduler, which the caller stops.
func (a *arm) startForSpeed(ctx context.Context) error {
	s, err := a.start(ctx)
	if err != nil {
		return err
	}
	if err = s.await(ctx, "it knows all nodes, pods and slots", a.knowsAll); err == nil {
		_, err = s.settled(ctx)
	}
	if err != nil {
		return errors.Join(err, s.stop())
	}
	a.running = s
	return nil
}

// bindFurther creates pods and measures how fast the scheduler binds them.
func (a *arm) bindFurther(ctx context.Context, round int) error {
	n := a.further
	if a.dra {
		n = a.furtherDRA
	}
	pods := a.client.CoreV1().Pods(namespace)
	now, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- a.profileCPU(ctx) }()
	before, err := a.usage()
	if err != nil {
		return err
	}
	begin := time.Now()
	created := make(chan error, 1)
	go func() { created <- a.createPods(ctx, n) }()
	if err := a.awaitBindings(ctx, now.ResourceVersion, n); err != nil {
		return err
	}
	s := speed{pods: float64(n), seconds: time.Since(begin).Seconds()}
	after, err := a.usage()
	if err := errors.Join(err, <-created, <-profiled); err != nil {
		return err
	}
	s.cpu = usage{after.scheduler - before.scheduler, after.api - before.api, after.etcd - before.etcd}
	a.speeds = append(a.speeds, s)
	progress("%s: round %d, %.0f pods/s, %.2f ms CPU a pod of the scheduler", a.name, round+1, s.pods/s.seconds, 1000*s.cpu.scheduler/s.pods)
	return a.running.await(ctx, "the API shows all pods as bound", a.checkBound)
}

// profileCPU profiles the scheduler and the API server, if profiles are wanted.
func (a *arm) profileCPU(ctx context.Context) error {
	if a.profiles == "" {
		return nil
	}
	scheduler := make(chan error, 1)
	go func() {
		scheduler <- a.profile(ctx, a.running, "cpu", fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
	}()
	text, err := a.client.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(profileSeconds)).DoRaw(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(a.profiles, a.name+"-apiserver-cpu.pprof"), text, 0o644)
	}
	return errors.Join(err, <-scheduler)
}

// awaitBindings sees so many pods become bound since then: with its field selector,
// the watch adds each when it is.
func (a *arm) awaitBindings(ctx context.Context, since string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	bindings := cache.NewListWatchFromClient(a.client.CoreV1().RESTClient(), string(v1.ResourcePods), namespace, bound)
	seen := 0
	if _, err := watchtools.Until(ctx, since, bindings, func(e watch.Event) (bool, error) {
		if e.Type == watch.Added {
			seen++
		}
		return seen == n, nil
	}); err != nil {
		return fmt.Errorf("wait until %d pods are bound: %w; %d are", n, err, seen)
	}
	return nil
}

// usage is the CPU that the arm's processes have used so far.
func (a *arm) usage() (u usage, err error) {
	of := func(pid int, err error) (float64, error) {
		if err != nil {
			return 0, err
		}
		p, err := procfs.NewProc(pid)
		if err != nil {
			return 0, err
		}
		stat, err := p.Stat()
		return stat.CPUTime(), err
	}
	var errs [4]error
	u.scheduler, errs[0] = of(a.running.cmd.Process.Pid, nil)
	if a.plugin.cmd != nil {
		var plugin float64
		plugin, errs[3] = of(a.plugin.cmd.Process.Pid, nil)
		u.scheduler += plugin
	}
	u.api, errs[1] = of(a.cluster.PID(cluster.APIServer, ""))
	u.etcd, errs[2] = of(a.cluster.PID(cluster.Etcd, ""))
	return u, errors.Join(errs[:]...)
}
