package nri

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/nri/nritest"
	"github.com/kubeslot/kubeslot/test/await"
)

// A runtime that has plugins validate does not create the container over which kubecri
// hangs: nobody says that it is good.
func TestAHangIsNotSurvivedByItsContainer(t *testing.T) {
	adaptation.SetPluginRequestTimeout(2 * time.Second)
	defer adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout)
	goesOn := make(chan struct{})
	first := sync.OnceFunc(func() { <-goesOn })
	f := start(t, &runtime{}, func(ctx context.Context, instance string) (discovery.Device, error) {
		first()
		return camera(ctx, instance)
	})
	request := create("main", "c1", admittest.Assigned(admittest.Good))
	response, err := f.rt.CreateContainer(t.Context(), request)
	if err == nil || !strings.Contains(err.Error(), "validator plugin 50-kubecri failed") {
		t.Errorf("got %v, %v, want a refusal", response, err)
	}
	await.That(t, "the plugin to be asked again", func() bool { return f.asked(t) })
	close(goesOn)      // before that the answer might be in time, as far as the plugin can tell
	f.WantUsage(t, "") // the late answer is taken back
	if _, err = f.rt.CreateContainer(t.Context(), request); err != nil {
		t.Errorf("the next try: %v", err)
	}
	f.WantUsage(t, "C:u1:node-a")
}

// Whatever becomes of the answer, a container that lacks what it was assigned is not valid.
func TestWhatLacksItsDevicesIsNotValid(t *testing.T) {
	s := &session{Plugin: newFlow(t, &runtime{}, camera).plugin, ctx: t.Context()}
	request := create("main", "c1", admittest.Assigned(admittest.Good))
	validate := func(adjust *api.ContainerAdjustment) error {
		return s.ValidateContainerAdjustment(t.Context(), &api.ValidateContainerAdjustmentRequest{Pod: request.Pod, Container: request.Container, Adjust: adjust})
	}
	if err := validate(nil); err == nil || !strings.Contains(err.Error(), `"main" of pod ns/cams`) || !strings.Contains(err.Error(), "cam-a1-0") {
		t.Errorf("got %v, want an error with the container and what it lacks", err)
	}
	if err := validate(&api.ContainerAdjustment{Annotations: map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}}); err != nil {
		t.Errorf("with its device: %v", err)
	}
	request.Container.Name = "side"
	if err := validate(nil); err != nil {
		t.Errorf("a container without devices: %v", err)
	}
}

func TestRecent(t *testing.T) {
	for version, is := range map[string]bool{"v0.12.0": true, "v0.10.0": true,
		"v0.9.1-0.20250219030224-e597e7849f24": false, "0.0.0-unknown": false, "": false, "(devel)": false} {
		if recent(version) != is {
			t.Errorf("%s: %t", version, !is)
		}
	}
}

// A runtime whose limit is over before kubecri has synchronized does without it, and
// creates containers meanwhile. They are looked for when kubecri is back, and what it has
// said of them late counts for nothing.
func TestLateSynchronize(t *testing.T) {
	adaptation.SetPluginRequestTimeout(time.Second)
	defer adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout)
	rt := &runtime{}
	f := newFlow(t, rt, camera)
	theirs := f.socket + ".runtime"
	relay := nritest.NewRelay(t, f.socket, theirs)
	relay.HoldAt("Synchronize")
	rt.serve(t, theirs)
	await.That(t, "the runtime to give up", func() bool {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		return rt.gaveUp > 0
	})
	if err := f.plugin.Connected(); err == nil {
		t.Error("connected, and not yet synchronized")
	}
	pod := sandbox(admittest.Assigned(admittest.Good))
	past := &api.Container{Id: "past", PodSandboxId: "box", Name: "main", State: api.ContainerState_CONTAINER_RUNNING}
	rt.mu.Lock()
	rt.pods, rt.containers = []*api.PodSandbox{pod}, []*api.Container{past}
	rt.mu.Unlock()
	before := rt.lists()
	relay.Release() // kubecri is told now, and that the runtime has gone
	await.That(t, "the plugin to be asked", func() bool { return f.asked(t) })
	await.That(t, "the runtime's containers to be looked at", func() bool { return rt.lists() > before })
	if err := f.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: pod, Container: past}); err == nil {
		t.Error("what was created meanwhile is started")
	}
}

// A request that a session was at work on when it ended changes nothing of the next one.
func TestRequestsOfAFormerSession(t *testing.T) {
	f := newFlow(t, &runtime{}, camera)
	f.stop()
	old, now := &session{Plugin: f.plugin, ctx: t.Context()}, &session{Plugin: f.plugin, ctx: t.Context()}
	f.plugin.began(old)
	f.plugin.ended(old)
	f.plugin.began(now)
	request := create("main", "c1", admittest.Assigned(admittest.Good))
	if _, _, err := now.CreateContainer(t.Context(), request.Pod, request.Container); err != nil {
		t.Fatal(err)
	}
	f.WantUsage(t, "C:u1:node-a")
	if _, err := old.Synchronize(t.Context(), nil, nil); err == nil || f.plugin.Connected() == nil {
		t.Errorf("synchronized, %v", err)
	}
	if a := f.plugin.end("c1"); a == nil {
		t.Fatal("the creation in hand was settled by the list of a former session")
	} else {
		a.Created(t.Context(), "c1")
	}
	adjustment, _, err := old.CreateContainer(t.Context(), request.Pod, &api.Container{Id: "c2", PodSandboxId: "box", Name: "main"})
	if err == nil || adjustment != nil || f.plugin.end("c2") != nil {
		t.Errorf("answered %v, %v, want that nobody waits for it", adjustment, err)
	}
	f.WantUsage(t, "C:u1:node-a") // of c1
}

// A runtime does not always tell that a container was created, nor that it was not: CRI-O neither for one that its OCI
// runtime fails to create, or another plugin refuses, nor for one whose request had timed out. The slot is free all the
// same once the sandbox has stopped.
func TestWhatTheRuntimeDoesNotTell(t *testing.T) {
	pod := sandbox(admittest.Assigned(admittest.Good))
	for name, goesOn := range map[string]func(*testing.T, *flow){
		"not created": func(*testing.T, *flow) {},
		"created when it was tried again": func(t *testing.T, f *flow) {
			_, err := f.rt.CreateContainer(t.Context(), create("main", "c2", pod.Annotations))
			c := &api.Container{Id: "c2", PodSandboxId: "box", Name: "main"}
			post := &api.PostCreateContainerRequest{Pod: pod, Container: c}
			if err := errors.Join(err, f.rt.PostCreateContainer(t.Context(), post)); err != nil {
				t.Fatal(err)
			}
		},
		"created and started": func(t *testing.T, f *flow) {
			c := &api.Container{Id: "c1", PodSandboxId: "box", Name: "main",
				Annotations: map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}}
			if err := f.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: pod, Container: c}); err != nil {
				t.Fatal(err)
			}
			values, err := testutil.GetCounterValuesFromGatherer(f.Counts, "kubecri_injections_total", nil, "result")
			if err != nil || values["injected"] != 1 {
				t.Errorf("counted %v, %v", values, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, &runtime{}, camera)
			if _, err := f.rt.CreateContainer(t.Context(), create("main", "c1", pod.Annotations)); err != nil {
				t.Fatal(err)
			}
			goesOn(t, f)
			f.WantUsage(t, "C:u1:node-a")
			if err := f.rt.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod}); err != nil {
				t.Fatal(err)
			}
			f.WantUsage(t, "")
		})
	}
}

// A kubecri that ends answers what it was asked before.
func TestStopLetsTheAnswerOut(t *testing.T) {
	asked, reply := make(chan struct{}), make(chan struct{})
	f := start(t, &runtime{}, func(ctx context.Context, instance string) (discovery.Device, error) {
		close(asked)
		<-reply
		return camera(ctx, instance)
	})
	answer := make(chan *api.CreateContainerResponse)
	go func() {
		request := create("main", "c1", admittest.Assigned(admittest.Good))
		response, err := f.rt.CreateContainer(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		if err := f.rt.PostCreateContainer(t.Context(), &api.PostCreateContainerRequest{Pod: request.Pod,
			Container: request.Container}); err != nil {
			t.Error(err)
		}
		answer <- response
	}()
	<-asked
	stopped := make(chan struct{})
	go func() { defer close(stopped); f.stop() }()
	close(reply)
	if response := <-answer; nothing(response) {
		t.Errorf("the container was created without its devices: %v", response)
	}
	<-stopped
}
