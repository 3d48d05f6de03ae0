package nri

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/test/await"
)

func TestAssignedContainerGetsItsDeviceUntilItIsRemoved(t *testing.T) {
	pod := sandbox(admittest.Assigned(admittest.Good))
	for name, remove := range map[string]func(context.Context, *runtime) error{
		"RemoveContainer": func(ctx context.Context, r *runtime) error {
			return r.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: &api.Container{Id: "c1"}})
		},
		"StopPodSandbox": func(ctx context.Context, r *runtime) error {
			return r.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod})
		},
		"RemovePodSandbox": func(ctx context.Context, r *runtime) error {
			return r.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, &runtime{}, camera)
			request := create("main", "c1", pod.Annotations)
			response, err := f.rt.CreateContainer(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			f.WantUsage(t, "C:u1:node-a")
			got := response.Adjust
			if got.Annotations["akri.agent.slot-cam-a1-0"] != "C:u1:cam-a1-0" || len(got.Env) != 3 || got.Env[0].Key != "URL" || got.Env[0].Value != "rtsp://a" ||
				len(got.CDIDevices) != 1 || got.CDIDevices[0].Name != "akri.sh/cam-a1" {
				t.Errorf("the runtime got %v", got)
			}
			c := &api.Container{Id: "c1", PodSandboxId: "box", Name: "main", Annotations: got.Annotations}
			if err := f.rt.PostCreateContainer(t.Context(), &api.PostCreateContainerRequest{Pod: pod, Container: c}); err != nil {
				t.Fatal(err)
			}
			if err := f.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: pod, Container: c}); err != nil {
				t.Error(err)
			}
			if _, err := f.rt.StopContainer(t.Context(), &api.StopContainerRequest{Pod: pod, Container: c}); err != nil {
				t.Fatal(err)
			}
			f.WantUsage(t, "C:u1:node-a")
			if err := remove(t.Context(), f.rt); err != nil {
				t.Fatal(err)
			}
			f.WantUsage(t, "")
		})
	}
}

// A runtime whose NRI may give a container no CDI devices gets what a device brings written out: it would say nothing.
func TestNoCDIByAnOldNRI(t *testing.T) {
	for version, byName := range map[string]bool{before: false, "v2.3.7": true} {
		f := start(t, &runtime{version: version}, func(context.Context, string) (discovery.Device, error) {
			return discovery.Device{Mounts: []discovery.Mount{{HostPath: "/etc/hosts", ContainerPath: "/h"}}}, nil
		})
		response, err := f.rt.CreateContainer(t.Context(), create("main", "c1", admittest.Assigned(admittest.Good)))
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Adjust; len(got.CDIDevices) > 0 != byName || len(got.Mounts) > 0 == byName {
			t.Errorf("containerd %s got %v", version, got)
		}
		f.stop()
	}
}

// A broker, which its label tells, gets all properties that its Configuration's author wrote.
func TestBrokersGetTheirConfigurationsProperties(t *testing.T) {
	f := start(t, &runtime{}, func(context.Context, string) (discovery.Device, error) {
		return discovery.Device{Properties: map[string]string{"SITE": "yard"}, BrokerVariables: map[string]bool{"SITE": true}}, nil
	})
	for label, want := range map[string]string{"cam": "SITE SITE_A1 AKRI_DEVICES", "cams": "SITE_A1 AKRI_DEVICES"} {
		request := create("main", "c1", admittest.Assigned(admittest.Good))
		request.Pod.Labels = map[string]string{"akri.sh/configuration": label}
		response, err := f.rt.CreateContainer(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, env := range response.Adjust.Env {
			names = append(names, env.Key)
		}
		if is := strings.Join(names, " "); is != want {
			t.Errorf("with the label %q: variables %s, want %s", label, is, want)
		}
		if err := f.rt.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: request.Pod, Container: request.Container}); err != nil {
			t.Fatal(err)
		}
	}
}

// The runtime undoes a creation that fails after we have agreed to it.
func TestFailedCreateReleases(t *testing.T) {
	f := start(t, &runtime{}, camera)
	if _, err := f.rt.CreateContainer(t.Context(), create("main", "c1", admittest.Assigned(admittest.Good))); err != nil {
		t.Fatal(err)
	}
	f.WantUsage(t, "C:u1:node-a")
	if err := f.rt.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: &api.PodSandbox{Id: "box"}, Container: &api.Container{Id: "c1"}}); err != nil {
		t.Fatal(err)
	}
	f.WantUsage(t, "")
	values, err := testutil.GetCounterValuesFromGatherer(f.Counts, "kubecri_injections_total", nil, "result")
	if err != nil || values["rejected"] != 1 || values["injected"] != 0 {
		t.Errorf("counted %v, %v", values, err)
	}
}

func TestOtherContainersPassUntouched(t *testing.T) {
	f := start(t, &runtime{}, camera)
	for name, annotations := range map[string]map[string]string{"side": admittest.Assigned(admittest.Good), "debug": nil} {
		response, err := f.rt.CreateContainer(t.Context(), create(name, "c1", annotations))
		if err != nil || !nothing(response) {
			t.Errorf("%s: %v, %v", name, response, err)
		}
		if err := f.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox(annotations), Container: &api.Container{Id: "c1", Name: name}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// nothing reports whether a response adjusts nothing.
func nothing(r *api.CreateContainerResponse) bool {
	return len(r.GetAdjust().GetEnv())+len(r.GetAdjust().GetAnnotations())+len(r.GetAdjust().GetCDIDevices()) == 0
}

func TestNeverWithoutItsDevices(t *testing.T) {
	missing := func(context.Context, string) (discovery.Device, error) {
		return discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{HostPath: "/dev/is-not-there", ContainerPath: "/dev/x"}}}, nil
	}
	for _, test := range []struct {
		name        string
		annotations map[string]string
		device      devices
		says        []string
	}{
		{"not assigned", nil, camera, []string{`"main"`, "ns/cams", "akri.sh/cam"}},
		{"malformed", admittest.Assigned("{"), camera, []string{`"main"`, "ns/cams", "JSON"}},
		{"no such slot", admittest.Assigned(strings.Replace(admittest.Good, "cam-a1-0", "cam-a1-7", 1)), camera, []string{"cam-a1-7", "capacity 1"}},
		{"device not known", admittest.Assigned(admittest.Good), func(context.Context, string) (discovery.Device, error) {
			return discovery.Device{}, errors.New("waiting for the first report")
		}, []string{"ns/cams", "first report"}},
		{"device node gone", admittest.Assigned(admittest.Good), missing, []string{`"main"`, "ns/cams", "/dev/is-not-there"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := start(t, &runtime{}, test.device)
			response, err := f.rt.CreateContainer(t.Context(), create("main", "c1", test.annotations))
			if err == nil {
				t.Fatalf("no error: %v", response)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			f.WantUsage(t, "")
		})
	}
}

// A late answer is no answer, and the container starts without its devices: so what takes too long ends with a quarter
// of the limit left for the way, is refused, and the plugin stays connected.
func TestAnswersWithinTheRuntimesLimit(t *testing.T) {
	const limit = 40 * time.Second
	adaptation.SetPluginRequestTimeout(limit)
	defer adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout)
	f := start(t, &runtime{}, func(ctx context.Context, _ string) (discovery.Device, error) {
		if ends, ok := ctx.Deadline(); !ok || time.Until(ends) > limit*3/4 {
			t.Errorf("a device is waited for until %s, in %s", ends, time.Until(ends))
		}
		return discovery.Device{}, errors.New("the device was not found in time")
	})
	for range 2 {
		_, err := f.rt.CreateContainer(t.Context(), create("main", "c1", admittest.Assigned(admittest.Good)))
		if err == nil || !strings.Contains(err.Error(), "not found in time") {
			t.Fatalf("got %v, want a refusal", err)
		}
	}
	f.WantUsage(t, "")
}

// A kubecri that hangs is dropped by the runtime, which creates the container without it if
// it does not know validation. kubecri finds what was created past it when it has
// connected again.
func TestAHangIsMadeUpFor(t *testing.T) {
	adaptation.SetPluginRequestTimeout(2 * time.Second)
	defer adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout)
	hangs, goesOn := make(chan struct{}), make(chan struct{})
	f := start(t, &runtime{version: before}, func(ctx context.Context, instance string) (discovery.Device, error) {
		close(hangs)
		<-goesOn // as long as it takes
		return camera(ctx, instance)
	})
	request := create("main", "c1", admittest.Assigned(admittest.Good))
	f.rt.mu.Lock()
	f.rt.pods, f.rt.containers = []*api.PodSandbox{request.Pod}, []*api.Container{{Id: "c1", PodSandboxId: "box", Name: "main", State: api.ContainerState_CONTAINER_RUNNING}}
	f.rt.mu.Unlock()
	await.That(t, "the runtime's containers to be looked at since it is connected",
		func() bool { return f.rt.lists() > 1 })
	before := f.rt.lists()
	response, err := f.rt.CreateContainer(t.Context(), request)
	if err != nil || !nothing(response) {
		t.Fatalf("NRI fails open, and yet: %v, %v", response, err)
	}
	<-hangs
	await.That(t, "the runtime's containers to be looked at", func() bool { return f.rt.lists() > before })
	close(goesOn)
	await.That(t, "the plugin to be asked again", func() bool { return f.asked(t) })
	if err := f.rt.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: request.Pod, Container: &api.Container{Id: "c1"}}); err != nil {
		t.Fatal(err)
	}
	f.WantUsage(t, "")
}

func TestConnectsAgainWhenTheRuntimeIsBack(t *testing.T) {
	f := start(t, &runtime{}, camera)
	pod := sandbox(admittest.Assigned(admittest.Good))
	if _, err := f.rt.CreateContainer(t.Context(), create("main", "c1", pod.Annotations)); err != nil {
		t.Fatal(err)
	}
	// It dies in the middle of a creation, and somebody else is at its socket for a
	// moment.
	f.rt.kill(t)
	await.That(t, "the loss to be noticed", func() bool { return f.plugin.Connected() != nil })
	if err := os.Remove(f.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	l.Close()
	// The container came to be, with what it was to have.
	f.rt.pods = []*api.PodSandbox{pod}
	f.rt.containers = []*api.Container{{Id: "c1", PodSandboxId: "box", Name: "main", State: api.ContainerState_CONTAINER_CREATED,
		Annotations: map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}}}
	f.rt.serve(t, f.socket)
	await.That(t, "the plugin to be connected again", func() bool { return f.asked(t) })
	if err := f.rt.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: pod, Container: &api.Container{Id: "c1"}}); err != nil {
		t.Fatal(err)
	}
	f.WantUsage(t, "")
}

// kill ends the runtime's half and its connections, as the end of its process does.
// The library leaves those of plugins that it did not launch open, so it is made to
// close one as too slow.
func (r *runtime) kill(t *testing.T) {
	t.Helper()
	adaptation.SetPluginRequestTimeout(time.Nanosecond)
	defer adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout)
	for range 50 { // an answer and the end of its time may be seen in either order
		if err := r.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: &api.PodSandbox{Id: "none"}}); err != nil {
			t.Fatal(err)
		}
	}
	r.Stop()
}

// Containers that the runtime created while it did without us are not started. Those that
// it has started are looked for at once (package repair).
func TestWhatLacksItsDevicesDoesNotRun(t *testing.T) {
	pod := sandbox(admittest.Assigned(admittest.Good))
	has := map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}
	rt := &runtime{pods: []*api.PodSandbox{pod}, containers: []*api.Container{
		{Id: "lacking", PodSandboxId: "box", Name: "main", State: api.ContainerState_CONTAINER_RUNNING},
		{Id: "whole", PodSandboxId: "box", Name: "main", State: api.ContainerState_CONTAINER_RUNNING, Annotations: has},
		{Id: "without", PodSandboxId: "box", Name: "side", State: api.ContainerState_CONTAINER_RUNNING},
		{Id: "podless", PodSandboxId: "gone", Name: "main", State: api.ContainerState_CONTAINER_RUNNING},
	}}
	f := start(t, rt, camera)
	// the first time is before it is connected
	await.That(t, "the runtime's containers to be looked at", func() bool {
		return rt.lists() > 1
	})

	err := f.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: pod, Container: rt.containers[0]})
	if err == nil || !strings.Contains(err.Error(), "cam-a1-0") {
		t.Errorf("started: %v", err)
	}
	static := proto.Clone(pod).(*api.PodSandbox)
	static.Annotations["kubernetes.io/config.source"] = "file"
	for _, request := range []*api.StartContainerRequest{{Pod: pod, Container: rt.containers[1]}, {Pod: static, Container: rt.containers[0]}} {
		if err := f.rt.StartContainer(t.Context(), request); err != nil {
			t.Error(err)
		}
	}
}

// A container that starts was admitted by a former connection, and was not there yet when this one synchronized: CRI-O
// creates containers meanwhile. It is looked for at once: nobody else says that its slot is in use.
func TestContainerOfAFormerConnection(t *testing.T) {
	rt := &runtime{}
	f := start(t, rt, camera)
	await.That(t, "the runtime's containers to be looked at", func() bool { return rt.lists() > 1 })
	pod, before := sandbox(admittest.Assigned(admittest.Good)), rt.lists()
	container := &api.Container{Id: "c1", PodSandboxId: "box", Name: "main",
		Annotations: map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}}
	err := f.rt.StartContainer(t.Context(), &api.StartContainerRequest{Pod: pod, Container: container})
	if err != nil {
		t.Error(err)
	}
	await.That(t, "its container to be looked for", func() bool { return rt.lists() > before })
}

// What docs/nri.md says of containerd's default validator.
func TestRuntimeCanRequireThePlugin(t *testing.T) {
	f := start(t, &runtime{}, camera, adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{
		Enable: true, RequiredPlugins: []string{"kubecri"}, TolerateMissingAnnotation: "tolerate"}))
	request := func(annotations map[string]string) error {
		_, err := f.rt.CreateContainer(t.Context(), create("side", "c2", annotations))
		return err
	}
	if err := request(nil); err != nil {
		t.Error(err)
	}
	f.stop()
	await.That(t, "the runtime to see that the plugin has gone", func() bool { return request(nil) != nil })
	if err := request(nil); !strings.Contains(err.Error(), `required plugin "kubecri" not present`) {
		t.Error(err)
	}
	if err := request(map[string]string{"tolerate/pod": "true"}); err != nil {
		t.Errorf("not tolerated: %v", err)
	}
}

// The node says whether its runtime requires the plugin, as the runtime itself shows it.
func TestNodeSaysWhetherTheRuntimeRequiresThePlugin(t *testing.T) {
	on := adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true})
	for name, tc := range map[string]struct {
		rt      *runtime
		options []adaptation.Option
		status  corev1.ConditionStatus
		says    string
	}{
		"no validator": {&runtime{}, nil, corev1.ConditionTrue, "enable = true under [plugins.'io.containerd.nri.v1.nri'.default_validator]"},
		"a validator":  {&runtime{}, []adaptation.Option{on}, corev1.ConditionFalse, "creates no container with devices"},
		"an old one":   {&runtime{version: before}, nil, corev1.ConditionTrue, "containerd 2.2, CRI-O 1.34 and newer can be told"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, tc.rt, camera, tc.options...)
			f.wantUnknown(t, tc.rt)
			if _, err := f.rt.CreateContainer(t.Context(), create("side", "c2", nil)); err != nil {
				t.Fatal(err)
			}
			if c := f.condition(); c.Type != "kubeslot.io/StartsWithoutKubecri" || c.Status != tc.status || !strings.Contains(c.Message, tc.says) {
				t.Errorf("the node says %+v, want %s and %q", c, tc.status, tc.says)
			}
			f.rt.kill(t)
			await.That(t, "the plugin to lose the runtime", func() bool { return f.plugin.Connected() != nil })
			f.rt.serve(t, f.socket, tc.options...)
			await.That(t, "the plugin to be connected again", func() bool { return f.plugin.Connected() == nil })
			f.wantUnknown(t, tc.rt)
		})
	}
}

// wantUnknown wants the node to say that it is not known what a runtime requires that can require the plugin.
func (f *flow) wantUnknown(t *testing.T, rt *runtime) {
	t.Helper()
	if c := f.condition(); rt.version != before && c.Status != corev1.ConditionUnknown {
		t.Errorf("once connected the node says %+v, want %s", c, corev1.ConditionUnknown)
	}
}
