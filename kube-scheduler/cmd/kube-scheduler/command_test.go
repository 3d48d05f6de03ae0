package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// A scheduler that begins to schedule leads, though there is no pod. Before, it may be a standby.
func TestIdleLeader(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	sched, err := scheduler.New(ctx, client, scheduler.NewInformerFactory(client, 0), nil,
		profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})))
	if err != nil {
		t.Fatal(err)
	}
	leads := make(chan struct{})
	onFirstPod(sched, func() { close(leads) })
	select {
	case <-leads:
		t.Fatal("a scheduler leads that does not run")
	default:
	}
	go sched.Run(ctx)
	select {
	case <-leads:
	case <-time.After(time.Minute):
		t.Fatal("waited a minute for the scheduler to lead")
	}
}

// The command takes upstream's flags, and says so in its help.
func TestFlagsAreUpstreams(t *testing.T) {
	ours, upstream := newCommand(func() {}), app.NewSchedulerCommand()
	upstream.Flags().VisitAll(func(f *pflag.Flag) {
		if got := ours.Flags().Lookup(f.Name); got == nil || got.DefValue != f.DefValue || got.Usage != f.Usage {
			t.Errorf("flag --%s is %+v, want %+v", f.Name, got, f)
		}
	})
	if !strings.Contains(ours.UsageString(), "--leader-elect") || ours.Use != upstream.Use {
		t.Errorf("usage: %s", ours.UsageString())
	}
}
