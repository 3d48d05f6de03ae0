package intercept

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// runtime answers forwarded requests.
type runtime struct {
	forwarded []byte
	err       error
}

func (r *runtime) forward(request []byte) proxy.Forward {
	return func(extra []byte) ([]byte, error) {
		r.forwarded = append(append([]byte(nil), request...), extra...)
		if r.err != nil {
			return nil, r.err
		}
		return proto.Marshal(&runtimeapi.CreateContainerResponse{ContainerId: "c1"})
	}
}

type flow struct {
	*admittest.World
	calls map[string]proxy.Interceptor
}

func newFlow(t *testing.T, device func(context.Context, string) (discovery.Device, error)) *flow {
	t.Helper()
	w := admittest.NewWorld(t, nil)
	if device == nil {
		device = func(context.Context, string) (discovery.Device, error) {
			return discovery.Device{Properties: map[string]string{"URL": "rtsp://a"}, Variables: map[string]bool{"URL": true}}, nil
		}
	}
	admitter, err := admit.New(admit.Config{Node: admittest.Node, Pods: w.Pods, Claims: w.Claims, Device: device, DeviceTimeout: time.Second, Metrics: w.Metrics,
		CDI: func(_ context.Context, instance string, _ discovery.Device) string { return "akri.sh/" + instance }})
	if err != nil {
		t.Fatal(err)
	}
	return &flow{w, New(admitter, w.Claims, nil)}
}

func (f *flow) create(t *testing.T, container string, annotations map[string]string, r *runtime) (request []byte, err error) {
	t.Helper()
	request, err = proto.Marshal(&runtimeapi.CreateContainerRequest{
		PodSandboxId: "box",
		Config:       &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: container}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Annotations: annotations,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: admittest.Pod.Namespace, Name: admittest.Pod.Name, Uid: admittest.Pod.UID}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return request, f.calls[runtimeapi.RuntimeService_CreateContainer_FullMethodName](t.Context(), request, r.forward(request))
}

func TestAssignedContainerGetsItsDeviceUntilItIsRemoved(t *testing.T) {
	for _, call := range []struct {
		method  string
		request proto.Message
	}{
		{runtimeapi.RuntimeService_RemoveContainer_FullMethodName, &runtimeapi.RemoveContainerRequest{ContainerId: "c1"}},
		{runtimeapi.RuntimeService_StopPodSandbox_FullMethodName, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "box"}},
		{runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "box"}},
	} {
		t.Run(call.method, func(t *testing.T) {
			f, r := newFlow(t, nil), &runtime{}
			if _, err := f.create(t, "main", admittest.Assigned(admittest.Good), r); err != nil {
				t.Fatal(err)
			}
			f.WantUsage(t, "C:u1:node-a")
			got := &runtimeapi.CreateContainerRequest{}
			if err := proto.Unmarshal(r.forwarded, got); err != nil {
				t.Fatal(err)
			}
			if got.Config.Annotations["akri.agent.slot-cam-a1-0"] != "C:u1:cam-a1-0" || len(got.Config.Envs) != 3 ||
				len(got.Config.CDIDevices) != 1 || got.Config.CDIDevices[0].Name != "akri.sh/cam-a1" || got.Config.Metadata.Name != "main" {
				t.Errorf("the runtime got %v", got.Config)
			}

			request, err := proto.Marshal(call.request)
			if err != nil {
				t.Fatal(err)
			}
			// While the runtime does not do it, the container is there.
			r.err = status.Error(codes.Unknown, "busy")
			if err := f.calls[call.method](t.Context(), request, r.forward(request)); err == nil {
				t.Error("the runtime's error was swallowed")
			}
			f.WantUsage(t, "C:u1:node-a")
			r.err = nil
			if err := f.calls[call.method](t.Context(), request, r.forward(request)); err != nil {
				t.Fatal(err)
			}
			f.WantUsage(t, "")
		})
	}
}

// A container with ResourceClaims of ours is created only while the runtime gives it their CDI devices: one that has
// CDI off since they were prepared would give it none, and say nothing. Other containers do not wait.
func TestResourceClaimsWithoutCDI(t *testing.T) {
	w := admittest.NewWorld(t, nil)
	off := errors.New("turn CDI on")
	for name, tc := range map[string]struct {
		usable error
		code   codes.Code
	}{
		"slots.kubeslot.io/claim=u1-cam": {nil, codes.OK},
		"slots.kubeslot.io/claim=u2-cam": {off, codes.Unavailable},
		"gpu.example/claim=u1-cam":       {off, codes.OK},
	} {
		admitter, err := admit.New(admit.Config{Node: admittest.Node, Pods: admittest.NoPods(), Claims: w.Claims,
			DeviceTimeout: time.Second, Metrics: w.Metrics, CDIUsable: func(context.Context) error { return tc.usable },
			Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		request, err := proto.Marshal(&runtimeapi.CreateContainerRequest{Config: &runtimeapi.ContainerConfig{
			CDIDevices: []*runtimeapi.CDIDevice{{Name: "v.com/a=b"}, {Name: name}}}})
		if err != nil {
			t.Fatal(err)
		}
		r := &runtime{}
		create := New(admitter, w.Claims, nil)[runtimeapi.RuntimeService_CreateContainer_FullMethodName]
		err = create(t.Context(), request, r.forward(request))
		if status.Code(err) != tc.code || err != nil && !strings.Contains(err.Error(), off.Error()) ||
			(r.forwarded != nil) != (err == nil) {
			t.Errorf("%s, usable: %v: %v, forwarded %t", name, tc.usable, err, r.forwarded != nil)
		}
	}
}

// Brokers are known by their label: their author, who wrote the Configuration, gave them its
// properties, and nobody else.
func TestBrokersGetTheirConfigurationsProperties(t *testing.T) {
	f := newFlow(t, func(context.Context, string) (discovery.Device, error) {
		return discovery.Device{Properties: map[string]string{"SITE": "yard"}, BrokerVariables: map[string]bool{"SITE": true}}, nil
	})
	for label, want := range map[string]string{"cam": "SITE SITE_A1 AKRI_DEVICES", "cams": "SITE_A1 AKRI_DEVICES", "": "SITE_A1 AKRI_DEVICES"} {
		request, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
			PodSandboxId: "box", Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
			SandboxConfig: &runtimeapi.PodSandboxConfig{Annotations: admittest.Assigned(admittest.Good), Labels: map[string]string{"akri.sh/configuration": label},
				Metadata: &runtimeapi.PodSandboxMetadata{Namespace: admittest.Pod.Namespace, Name: admittest.Pod.Name, Uid: admittest.Pod.UID}}})
		if err != nil {
			t.Fatal(err)
		}
		r, got := &runtime{}, &runtimeapi.CreateContainerRequest{}
		if err := f.calls[runtimeapi.RuntimeService_CreateContainer_FullMethodName](t.Context(), request, r.forward(request)); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(r.forwarded, got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, env := range got.Config.Envs {
			names = append(names, env.Key)
		}
		if is := strings.Join(names, " "); is != want {
			t.Errorf("with the label %q: variables %s, want %s", label, is, want)
		}
	}
}

func TestResultsAreCounted(t *testing.T) {
	f, r := newFlow(t, nil), &runtime{}
	for _, annotations := range []map[string]string{admittest.Assigned(admittest.Good), admittest.Assigned("{"), nil} {
		_, _ = f.create(t, "main", annotations, r)
	}
	r.err = status.Error(codes.Unknown, "no such image")
	_, _ = f.create(t, "main", admittest.Assigned(admittest.Good), r)
	request, err := proto.Marshal(&runtimeapi.RemoveContainerRequest{ContainerId: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	r.err = nil
	if err := f.calls[runtimeapi.RuntimeService_RemoveContainer_FullMethodName](t.Context(), request, r.forward(request)); err != nil {
		t.Fatal(err)
	}
	f.WantUsage(t, "")
	if err := testutil.GatherAndCompare(f.Counts, strings.NewReader(`# HELP kubecri_injections_total [ALPHA] CreateContainer calls that concerned devices, by result: injected, refused, failed (to be retried), rejected (by the runtime), ignored.
# TYPE kubecri_injections_total counter
kubecri_injections_total{result="failed"} 0
kubecri_injections_total{result="ignored"} 0
kubecri_injections_total{result="injected"} 1
kubecri_injections_total{result="refused"} 2
kubecri_injections_total{result="rejected"} 1
# HELP kubecri_claims_taken_total [ALPHA] Claims created for containers about to be created.
# TYPE kubecri_claims_taken_total counter
kubecri_claims_taken_total 1
`), "kubecri_injections_total", "kubecri_claims_taken_total"); err != nil {
		t.Error(err)
	}
}

func TestFailedCreateReleases(t *testing.T) {
	f, r := newFlow(t, nil), &runtime{err: status.Error(codes.Unknown, "no such image")}
	if _, err := f.create(t, "main", admittest.Assigned(admittest.Good), r); status.Code(err) != codes.Unknown {
		t.Errorf("got %v, want the runtime's error", err)
	}
	if r.forwarded == nil {
		t.Fatal("not forwarded")
	}
	f.WantUsage(t, "")
}

func TestOtherContainersPassUntouched(t *testing.T) {
	f, r := newFlow(t, nil), &runtime{}
	for name, annotations := range map[string]map[string]string{"side": admittest.Assigned(admittest.Good), "debug": nil} {
		request, err := f.create(t, name, annotations, r)
		if err != nil || string(request) != string(r.forwarded) {
			t.Errorf("%s: %v, or the request was changed", name, err)
		}
	}
}

func TestNeverWithoutItsDevices(t *testing.T) {
	unknown := func(context.Context, string) (discovery.Device, error) {
		return discovery.Device{}, errors.New("waiting for the first report")
	}
	for _, test := range []struct {
		name        string
		annotations map[string]string
		device      func(context.Context, string) (discovery.Device, error)
		code        codes.Code
		says        []string
	}{
		{"not assigned", nil, nil, codes.FailedPrecondition, []string{`"main"`, "ns/cams", "akri.sh/cam"}},
		{"malformed", admittest.Assigned("{"), nil, codes.FailedPrecondition, []string{`"main"`, "ns/cams", "JSON"}},
		{"no such slot", admittest.Assigned(strings.Replace(admittest.Good, "cam-a1-0", "cam-a1-7", 1)), nil, codes.FailedPrecondition, []string{"cam-a1-7", "capacity 1"}},
		{"device not known", admittest.Assigned(admittest.Good), unknown, codes.Unavailable, []string{"ns/cams", "first report"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, r := newFlow(t, test.device), &runtime{}
			_, err := f.create(t, "main", test.annotations, r)
			if status.Code(err) != test.code || r.forwarded != nil {
				t.Errorf("got %v (forwarded %t), want %s and nothing forwarded", err, r.forwarded != nil, test.code)
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
