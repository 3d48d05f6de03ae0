package binding

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

type fakeHandle struct {
	fwk.Handle
	client clientset.Interface
}

func (h fakeHandle) ClientSet() clientset.Interface { return h.client }
func (h fakeHandle) APICacher() fwk.APICacher       { return nil }

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

func slots() *types.PodInfo {
	return &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {
		Requests: types.ResourceList{"akri.sh/cam": 1}, AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-1-0"}}}}
}

func gpus() *types.PodInfo {
	return &types.PodInfo{
		InitContainers: map[string]types.ContainerInfo{"warm": {AllocateFrom: types.ResourceLocation{"gpu/0": "gpu/a"}}},
		RunningContainers: map[string]types.ContainerInfo{"main": {
			Requests: types.ResourceList{"gpu": 2}, DevRequests: types.ResourceList{"gpu/0": 1}, AllocateFrom: types.ResourceLocation{"gpu/0": "gpu/b"}}},
	}
}

// What two plugins gave a pod goes out in one Binding, whichever of them sends it.
func TestOneBindingCarriesAllParts(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	pod := newPod(`{"podname":"forged","nodename":"forged","requests":{"pod-wide":1},"runningcontainer":{"main":{
		"requests":{"gpu":2},"scorer":{"gpu":1},"devrequests":{"x":1},"allocatefrom":{"gpu/0":"forged"}}}}`)
	state := framework.NewCycleState()
	if err := errors.Join(Contribute(state, pod, "a", "Slots", slots()), Contribute(state, pod, "a", "Devices", gpus())); err != nil {
		t.Fatal(err)
	}
	if status := Bind(context.Background(), fakeHandle{client: client}, state, pod, "a"); !status.IsSuccess() {
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

func TestNothingContributedIsSkipped(t *testing.T) {
	state, pod := framework.NewCycleState(), newPod("")
	if status := Bind(context.Background(), fakeHandle{}, state, pod, "a"); !status.IsSkip() {
		t.Error(status)
	}
	if err := Contribute(state, pod, "a", "Slots", slots()); err != nil {
		t.Fatal(err)
	}
	Withdraw(state, pod, "Slots")
	if status := Bind(context.Background(), fakeHandle{}, state, pod, "a"); !status.IsSkip() {
		t.Error("after withdrawal:", status)
	}
}

// A pod that is reserved again, as a gang's may be, carries nothing of before.
func TestContributedAgain(t *testing.T) {
	state, pod := framework.NewCycleState(), newPod("")
	if err := errors.Join(Contribute(state, pod, "a", "Slots", slots()), Contribute(state, pod, "a", "Devices", gpus())); err != nil {
		t.Fatal(err)
	}
	text := func() string { return read(state).annotations[assignment.Annotation] }
	Withdraw(state, pod, "Devices")
	if strings.Contains(text(), "gpu") || !strings.Contains(text(), "cam-1-0") {
		t.Error("after one withdrew:", text())
	}
	if err := Contribute(state, pod, "b", "Devices", gpus()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text(), "cam-1-0") || !strings.Contains(text(), `"nodename":"b"`) {
		t.Error("for another node:", text())
	}
	if status := Bind(context.Background(), fakeHandle{}, state, pod, "a"); status.Code() != fwk.Error {
		t.Error("bound to the node that it was not for:", status)
	}
}

func TestRefusedBeforeBinding(t *testing.T) {
	tests := map[string]struct {
		annotation string
		other      *types.PodInfo
		want       string
	}{
		"given twice": {"", &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {
			AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-2-0"}}}}, `container "main": "akri.sh/cam/0" is allocated as cam-1-0, and by another plugin as cam-2-0`},
		"asked twice": {"", &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {
			DevRequests: types.ResourceList{"gpu/0": 7}}}}, `"gpu/0" is requested as 1, and by another plugin as 7`},
		"malformed": {`{`, nil, "KubeDevice/DeviceInfo"},
		"too large": {`{"requests":{"` + strings.Repeat("x", 256<<10) + `":1}}`, nil, "262144 allowed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state, pod := framework.NewCycleState(), newPod(test.annotation)
			var err error
			if test.other != nil {
				err = Contribute(state, pod, "a", "Another", test.other)
			}
			err = errors.Join(err, Contribute(state, pod, "a", "Devices", gpus()), Contribute(state, pod, "a", "Slots", slots()))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// With the API server gone, the devices stay taken until it says what happened.
func TestLostBindWaitsForTheAPI(t *testing.T) {
	client, pod, state, asked := fake.NewClientset(), newPod(""), framework.NewCycleState(), 0
	if err := Contribute(state, pod, "a", "Slots", slots()); err != nil {
		t.Fatal(err)
	}
	client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() == "create" {
			live := pod.DeepCopy()
			b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
			live.Spec.NodeName, live.Annotations = b.Target.Name, b.Annotations
			return true, nil, errors.Join(client.Tracker().Add(live), errors.New("connection reset"))
		}
		if asked++; asked < 3 {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	if status := Bind(context.Background(), fakeHandle{client: client}, state, pod, "a"); !status.IsSuccess() || asked != 3 {
		t.Errorf("Bind: %v after asking %d times", status, asked)
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
