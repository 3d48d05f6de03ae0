package binding

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
)

var errForbidden = apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("quota"))

type fakeHandle struct {
	fwk.Handle
	client clientset.Interface
}

func (h fakeHandle) ClientSet() clientset.Interface { return h.client }
func (h fakeHandle) APICacher() fwk.APICacher       { return nil }

func binder(client clientset.Interface, signer *signing.Signer) *Binder {
	return &Binder{Handle: fakeHandle{client: client}, Signer: signer, Clock: clock.RealClock{}}
}

// none binds to nodes without NRI.
var none = binder(nil, nil)

// answering is an API server that says this to each Binding.
func answering(err error) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return client
}

func newPod(annotation string) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p-uid"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "warm"}, {Name: "sidecar", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "main"}},
	}}
	if annotation != "" {
		p.Annotations = map[string]string{assignment.Annotation: annotation}
	}
	return p
}

func slots() map[string]types.ContainerInfo {
	return map[string]types.ContainerInfo{
		"main": {Requests: types.ResourceList{"akri.sh/cam": 1}, AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-1-0"}},
	}
}

func gpus() map[string]types.ContainerInfo {
	return map[string]types.ContainerInfo{
		"warm": {AllocateFrom: types.ResourceLocation{"gpu/0": "gpu/a"}},
		"main": {Requests: types.ResourceList{"gpu": 2}, DevRequests: types.ResourceList{"gpu/0": 1},
			AllocateFrom: types.ResourceLocation{"gpu/0": "gpu/b"}},
	}
}

// contributed is the state of a cycle in which two plugins gave the pod something on node a.
func contributed(t *testing.T, pod *v1.Pod) fwk.CycleState {
	t.Helper()
	state := framework.NewCycleState()
	if err := errors.Join(none.Contribute(state, pod, "a", "Slots", slots(), nil), none.Contribute(state, pod, "a", "Devices", gpus(), nil)); err != nil {
		t.Fatal(err)
	}
	return state
}

// What two plugins gave a pod goes out in one Binding, whichever of them sends it.
func TestOneBindingCarriesAllParts(t *testing.T) {
	client := answering(nil)
	pod := newPod(`{"podname":"forged","nodename":"forged","requests":{"pod-wide":1},"runningcontainer":{"main":{
		"requests":{"gpu":2},"scorer":{"gpu":1},"devrequests":{"x":1},"allocatefrom":{"gpu/0":"forged"}}}}`)
	if status := binder(client, nil).Bind(t.Context(), contributed(t, pod), pod, "a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if len(client.Actions()) != 1 {
		t.Fatalf("want one API call; got %v", client.Actions())
	}
	sent := client.Actions()[0].(clienttesting.CreateAction).GetObject().(*v1.Binding)
	const want = `{"podname":"p","nodename":"a","requests":{"pod-wide":1},"initcontainer":{"warm":{"allocatefrom":{"gpu/0":"gpu/a"}}},` +
		`"runningcontainer":{"main":{"requests":{"akri.sh/cam":1,"gpu":2},"devrequests":{"gpu/0":1},` +
		`"allocatefrom":{"akri.sh/cam/0":"cam-1-0","gpu/0":"gpu/b"},"scorer":{"gpu":1}}}}`
	if got := sent.Annotations[assignment.Annotation]; got != want {
		t.Errorf("annotation\n got %s\nwant %s", got, want)
	}
	if sent.Annotations[assignment.HolderAnnotation] != "p-uid" || sent.UID != "p-uid" || sent.Target.Name != "a" {
		t.Errorf("%+v", sent)
	}
}

func TestRefusedBeforeBinding(t *testing.T) {
	tests := map[string]struct {
		annotation string
		main       types.ContainerInfo // given to it by another plugin
		want       string
	}{
		"given twice": {"", types.ContainerInfo{AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-2-0"}},
			`container "main": "akri.sh/cam/0" is allocated as cam-1-0, and by another plugin as cam-2-0`},
		"asked twice": {"", types.ContainerInfo{DevRequests: types.ResourceList{"gpu/0": 7}}, `"gpu/0" is requested as 1, and by another plugin as 7`},
		"malformed":   {`{`, types.ContainerInfo{}, "KubeDevice/DeviceInfo"},
		"too large":   {`{"requests":{"` + strings.Repeat("x", 256<<10) + `":1}}`, types.ContainerInfo{}, "262144 allowed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state, pod := framework.NewCycleState(), newPod(test.annotation)
			err := errors.Join(none.Contribute(state, pod, "a", "Another", map[string]types.ContainerInfo{"main": test.main}, nil),
				none.Contribute(state, pod, "a", "Devices", gpus(), nil), none.Contribute(state, pod, "a", "Slots", slots(), nil))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// server is an API server with one pod, which loses answers.
type server struct {
	pod *v1.Pod // nil when it is gone
	// fate says what becomes of each request in turn; afterwards all goes well.
	fate    []fate
	late    func() // a request that is still on its way
	sent    int
	getFate []error
}

type fate struct {
	applied bool  // the request is carried out
	late    bool  // it will be, when the next one has been
	err     error // what the client is told instead of the truth
}

func (s *server) bind(b *v1.Binding) error {
	switch {
	case s.pod == nil:
		return apierrors.NewNotFound(v1.Resource("pods"), b.Name)
	case s.pod.UID != b.UID, s.pod.Spec.NodeName != "", s.pod.DeletionTimestamp != nil:
		return apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, errors.New("already assigned, another one, or being deleted"))
	}
	s.pod.Spec.NodeName, s.pod.Annotations = b.Target.Name, b.Annotations
	return nil
}

func (s *server) react(a clienttesting.Action) (bool, runtime.Object, error) {
	if a.GetVerb() == "get" {
		if len(s.getFate) > 0 {
			err := s.getFate[0]
			s.getFate = s.getFate[1:]
			return true, nil, err
		}
		if s.pod == nil {
			return true, nil, apierrors.NewNotFound(v1.Resource("pods"), "p")
		}
		return true, s.pod.DeepCopy(), nil
	}
	b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	s.sent++
	var f fate
	if f.applied = true; len(s.fate) > 0 {
		f, s.fate = s.fate[0], s.fate[1:]
	}
	err := f.err
	if f.applied {
		if got := s.bind(b); err == nil {
			err = got
		}
	}
	if s.late != nil {
		s.late()
	}
	if f.late {
		s.late = func() { _ = s.bind(b) }
	}
	return true, nil, err
}

// When the answer to a bind is lost, its devices stay taken until it is certain
// whether the pod is bound by it.
func TestLostBinds(t *testing.T) {
	reset, timeout := errors.New("connection reset"), apierrors.NewTimeoutError("etcd", 1)
	down, forbidden := errors.New("connection refused"), errForbidden
	elsewhere := func(p *v1.Pod) { p.Spec.NodeName = "b" }
	tests := map[string]struct {
		change  func(*v1.Pod)
		gone    bool
		ends    bool
		fate    []fate
		getFate []error
		bound   bool
		sent    int
	}{
		"all is well":                       {bound: true, sent: 1},
		"refused":                           {fate: []fate{{err: forbidden}}, sent: 1},
		"pod deleted during bind":           {gone: true, sent: 1},
		"pod being deleted":                 {change: func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, sent: 1},
		"same name re-created":              {change: func(p *v1.Pod) { p.UID = "another" }, sent: 1},
		"conflict, another binding":         {change: elsewhere, sent: 1},
		"bind timed out but applied":        {fate: []fate{{applied: true, err: timeout}}, bound: true, sent: 2},
		"lost and applied":                  {fate: []fate{{applied: true, err: reset}}, bound: true, sent: 2},
		"lost and not applied":              {fate: []fate{{err: reset}}, bound: true, sent: 2},
		"lost and applied late":             {fate: []fate{{late: true, err: reset}}, bound: true, sent: 2},
		"lost, and then refused":            {fate: []fate{{err: reset}, {err: forbidden}}, sent: 2},
		"lost and applied, then refused":    {fate: []fate{{applied: true, err: reset}, {err: forbidden}}, bound: true, sent: 2},
		"API down for a while":              {fate: []fate{{applied: true, err: reset}, {err: down}, {err: down}}, getFate: []error{down, down}, bound: true, sent: 6},
		"lost, and then bound by another":   {change: elsewhere, fate: []fate{{err: reset}}, sent: 2},
		"lost, and bound there by another":  {change: func(p *v1.Pod) { p.Spec.NodeName = "a" }, fate: []fate{{err: reset}}, sent: 2},
		"lost, and the scheduler ends":      {ends: true, fate: []fate{{err: reset}}, sent: 1},
		"lost, and the pod deleted by then": {gone: true, fate: []fate{{err: reset}}, sent: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client, pod := fake.NewClientset(), newPod("")
			s := &server{pod: pod.DeepCopy(), fate: test.fate, getFate: test.getFate}
			if test.change != nil {
				test.change(s.pod)
			}
			if test.gone {
				s.pod = nil
			}
			client.PrependReactor("*", "pods", s.react)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if test.ends {
				end()
			}
			status := binder(client, nil).Bind(ctx, contributed(t, pod), pod, "a")
			if status.IsSuccess() != test.bound || s.sent != test.sent {
				t.Errorf("Bind: %v after %d requests, want bound %v after %d", status, s.sent, test.bound, test.sent)
			}
			ours := s.pod != nil && s.pod.UID == "p-uid" && s.pod.Annotations[assignment.HolderAnnotation] == "p-uid"
			if ours != test.bound {
				t.Errorf("the scheduler thinks that it is bound: %v, the API has it: %v", test.bound, ours)
			}
			if s.late != nil && test.bound {
				before := s.pod.DeepCopy()
				if s.late(); s.pod.Spec.NodeName != before.Spec.NodeName {
					t.Error("the late request changed the pod")
				}
			}
		})
	}
}

// asyncHandle is of a scheduler with SchedulerAsyncAPICalls.
type asyncHandle struct{ fakeHandle }

func (h asyncHandle) APICacher() fwk.APICacher { return sendingTwice{client: h.client} }

// sendingTwice sends a Binding again whose answer is lost, as upstream's does (util.BindPod).
type sendingTwice struct {
	fwk.APICacher
	client clientset.Interface
}

func (c sendingTwice) BindPod(b *v1.Binding) (<-chan error, error) {
	answer := make(chan error, 1)
	bind := func() error {
		return c.client.CoreV1().Pods(b.Namespace).Bind(context.Background(), b, metav1.CreateOptions{})
	}
	err := bind()
	if apierrors.IsServiceUnavailable(err) {
		err = bind()
	}
	answer <- err
	return answer, nil
}

func (sendingTwice) WaitOnFinish(_ context.Context, answer <-chan error) error { return <-answer }

// A refusal may be the answer to a second request, after one that was applied: the pod tells.
func TestRefusedAfterItWasSentTwice(t *testing.T) {
	for what, c := range map[string]struct {
		fate  []fate
		bound bool
	}{
		"lost and applied, then refused": {[]fate{{applied: true, err: apierrors.NewServiceUnavailable("down")}, {err: errForbidden}}, true},
		"lost, then refused":             {[]fate{{err: apierrors.NewServiceUnavailable("down")}, {err: errForbidden}}, false},
		"refused":                        {[]fate{{err: errForbidden}}, false},
	} {
		t.Run(what, func(t *testing.T) {
			client, pod := fake.NewClientset(), newPod("")
			s := &server{pod: pod.DeepCopy(), fate: c.fate}
			client.PrependReactor("*", "pods", s.react)
			b := &Binder{Handle: asyncHandle{fakeHandle{client: client}}, Clock: clock.RealClock{}}
			if status := b.Bind(t.Context(), contributed(t, pod), pod, "a"); status.IsSuccess() != c.bound || (s.pod.Spec.NodeName != "") != c.bound {
				t.Errorf("Bind says %v, the pod's node is %q, want it bound: %t", status, s.pod.Spec.NodeName, c.bound)
			}
		})
	}
}

// Where a container is filed says how its devices are counted, so that it is for
// the pod's spec to say and not for who wrote the annotation.
func TestContainersAreFiledAsTheyRun(t *testing.T) {
	for text, want := range map[string]string{
		`{"initcontainer":{"sidecar":{"requests":{"x":1}},"main":{"requests":{"x":2}}},"runningcontainer":{"warm":{"requests":{"x":3}},"stranger":{"requests":{"x":4}}}}`: `{"initcontainer":{"warm":{"requests":{"x":3}}},"runningcontainer":{"main":{"requests":{"x":2}},"sidecar":{"requests":{"x":1}},"stranger":{"requests":{"x":4}}}}`,
		`{"runningcontainer":{"sidecar":{"requests":{"x":1}}}}`: `{"runningcontainer":{"sidecar":{"requests":{"x":1}}}}`,
		`null`: `{}`,
	} {
		in, err := Input(newPod(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(in); string(got) != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	if _, err := Input(newPod(`{"initcontainer":{"main":{}},"runningcontainer":{"main":{}}}`)); err == nil || !strings.Contains(err.Error(), `"main"`) {
		t.Error("filed twice:", err)
	}
}
