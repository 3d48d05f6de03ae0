package scheduler

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// writers create objects side by side.
const writers = 16

// prepare returns the hook that makes the devices once all nodes are there.
func (r run) prepare(m *meter) perf.NodeUpdateFn {
	return func(tCtx ktesting.TContext, scheduler *kubescheduler.Scheduler, _ *perf.Workload, nodes *v1.NodeList) error {
		if len(nodes.Items) < r.nodes {
			return nil // the other kind of nodes comes next
		}
		var reach []v1.Node
		for i := range nodes.Items {
			if r.shared || strings.HasPrefix(nodes.Items[i].Name, deviceNodePrefix) {
				reach = append(reach, nodes.Items[i])
			}
		}
		profile := scheduler.Profiles[v1.DefaultSchedulerName]
		switch {
		case r.ours:
			last, err := r.createSlices(tCtx, reach)
			if err != nil {
				return err
			}
			if err := r.advertise(tCtx, reach); err != nil {
				return err
			}
			if err := waitForSlots(tCtx, last.Spec); err != nil {
				return err
			}
		case r.allocatorDRA:
			if err := r.createDRA(tCtx, scheduler, reach); err != nil {
				return err
			}
		case r.dra:
			if err := createResourceSlices(tCtx, scheduler, r.resourceSlices(reach)); err != nil {
				return err
			}
		}
		return m.start(profile.SharedInformerFactory().Core().V1().Pods().Informer())
	}
}

// createResourceSlices makes the slices, and waits until the scheduler has seen them.
func createResourceSlices(tCtx ktesting.TContext, scheduler *kubescheduler.Scheduler,
	slices []*resourceapi.ResourceSlice) error {
	if err := create(len(slices), func(i int) error {
		_, err := tCtx.Client().ResourceV1().ResourceSlices().Create(tCtx, slices[i], metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	dra := scheduler.Profiles[v1.DefaultSchedulerName].SharedDRAManager()
	if err := poll(tCtx, func(context.Context) (bool, error) {
		seen, err := dra.ResourceSlices().ListWithDeviceTaintRules()
		return len(seen) == len(slices), err
	}); err != nil {
		return fmt.Errorf("wait until the scheduler has seen the ResourceSlices: %w", err)
	}
	return nil
}

// create calls one for 0 to n-1, several at a time, and returns an error of them.
func create(n int, one func(int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(context.Background(), writers, n, func(i int) { errs[i] = one(i) })
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("create object %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}

// poll asks until done, which a hanging scheduler never is.
func poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Minute, true, done)
}
