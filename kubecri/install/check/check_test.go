package check

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// containerd answers as one, or as the runtime of the name.
type containerd struct {
	err  error
	name string
}

func (c containerd) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: cmp.Or(c.name, "containerd"), RuntimeVersion: "v2.3.7"}, c.err
}

func (c containerd) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": `{"enableCDI":true,"cdiSpecDirs":["/etc/cdi"]}`}}, nil
}

const good = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-8120fe-0"}}}}`

// pod has a container "main" that asks for a camera, one "side" that does not,
// and the assignment.
func pod(node, text string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1", Annotations: map[string]string{}}}
	if text != "" {
		p.Annotations = map[string]string{assignment.HolderAnnotation: "u1", assignment.Annotation: text}
	}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "side"}}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}
	return p
}

// setup returns a node where all is well, with the pod if there is one. holder is who
// has slot cam-8120fe-0, as <pod UID>@<node>; "" for nobody.
func setup(p *corev1.Pod, holder string) (Config, *kubefake.Clientset) {
	kube := kubefake.NewClientset(nodeA())
	c := Config{Node: "node-a", RuntimeEndpoint: "unix:///r.sock", Server: "https://api", Runtime: containerd{}, Kube: kube}
	if p != nil {
		kube = kubefake.NewClientset(nodeA(), p)
		c.Kube, c.Pod = kube, p.Namespace+"/"+p.Name
	}
	kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.2"}
	allow(kube, func(*authorizationv1.ResourceAttributes) bool { return true })
	c.Client = fake.NewSimpleClientset(
		&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"},
			Spec: akriv0.ConfigurationSpec{Capacity: 2, BrokerProperties: map[string]string{"PASSWORD": "x", "URL": "y"}}},
		slice("node-a", "foo0", true, v1alpha1.Problem{Reason: "UnknownHandler", Message: "no handler opcua"}),
		slice("node-b", "foo1", true))
	if holder != "" {
		uid, node, _ := strings.Cut(holder, "@")
		claim := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: "cam-8120fe-0"}, Spec: v1alpha1.SlotClaimSpec{NodeName: node, Container: "main",
			Level: v1alpha1.ConfigurationLevel, Holder: uid, Pod: &v1alpha1.PodReference{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)}}}
		if err := c.Client.(*fake.Clientset).Tracker().Add(claim); err != nil {
			panic(err)
		}
	}
	return c, kube
}

func nodeA() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"}}}
}

// slice is what a node says of one device.
func slice(node, id string, shared bool, problems ...v1alpha1.Problem) *v1alpha1.DeviceSlice {
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Problems: problems,
		Devices: []v1alpha1.Device{{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: id, Shared: shared,
			Hash: slot.InstanceHash(id, shared, node, slot.ShortHash), Properties: map[string]string{"URL": "rtsp://a"}}}}}
}

func allow(kube *kubefake.Clientset, may func(*authorizationv1.ResourceAttributes) bool) {
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(action ktesting.Action) (bool, runtime.Object, error) {
		review := action.(ktesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		review.Status.Allowed = may(review.Spec.ResourceAttributes)
		return true, review, nil
	})
}

func TestNode(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config, *kubefake.Clientset)
		well   bool
		says   []string
	}{
		{"well", func(*Config, *kubefake.Clientset) {}, true,
			[]string{"ok    runtime    containerd v2.3.7 at unix:///r.sock", "/etc/cdi", "ok    API", "ok    RBAC",
				"1 Configurations; node node-a reaches 1 devices, with 2 slots, and has claimed 0 slots", "note  devices    UnknownHandler: no handler opcua"}},
		{"runtime down", func(c *Config, _ *kubefake.Clientset) { c.Runtime = containerd{err: errors.New("no such file")} }, false,
			[]string{"FAIL  runtime", "no such file", "--runtime-endpoint", "ok    API"}},
		{"a permission is missing", func(_ *Config, kube *kubefake.Clientset) {
			allow(kube, func(a *authorizationv1.ResourceAttributes) bool {
				return a.Subresource != "status" && a.Verb != "delete"
			})
		}, false, []string{"FAIL  RBAC", "delete deviceslices, delete slotclaims, patch nodes/status", "system:kubecri:node-a"}},
		{"a handler does not work", func(c *Config, _ *kubefake.Clientset) {
			lost := slice("node-a", "foo2", true)
			lost.Name, lost.Spec.Devices[0].Unschedulable = "node-a-1", true
			if err := c.Client.(*fake.Clientset).Tracker().Add(lost); err != nil {
				panic(err)
			}
		}, true, []string{"reaches 2 devices", "note  devices    1 of them are for no new pods"}},
		{"a handler that writes to a terminal", func(c *Config, _ *kubefake.Clientset) {
			lost := slice("node-a", "foo2", true, v1alpha1.Problem{Reason: "DiscoveryFailed",
				Message: "a\x1b[2Jb\nok    RBAC"})
			lost.Name = "node-a-1"
			if err := c.Client.(*fake.Clientset).Tracker().Add(lost); err != nil {
				panic(err)
			}
		}, true, []string{"note  devices    DiscoveryFailed: a?[2Jb ok    RBAC\n"}},
		{"no CRDs", func(c *Config, _ *kubefake.Clientset) {
			c.Client.(*fake.Clientset).PrependReactor("list", "slotclaims", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("the server could not find the requested resource")
			})
		}, false, []string{"FAIL  devices", "deploy/crds"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, kube := setup(nil, "")
			test.change(&c, kube)
			wantReport(t, c, test.well, test.says)
		})
	}
}

// Who named a socket that is another runtime's is told which this host has.
func TestOtherRuntimes(t *testing.T) {
	dir := t.TempDir()
	before := runtimeSockets
	t.Cleanup(func() { runtimeSockets = before })
	runtimeSockets = []string{filepath.Join(dir, "crio.sock"), filepath.Join(dir, "none.sock"), filepath.Join(dir, "file.sock"), filepath.Join(dir, "r.sock")}
	for _, name := range []string{"crio.sock", "r.sock"} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := setup(nil, "")
	c.RuntimeEndpoint, c.Runtime = "unix://"+filepath.Join(dir, "r.sock"), containerd{err: errors.New("no such file")}
	wantReport(t, c, false, []string{"FAIL  runtime", "its socket? This host has unix://" + filepath.Join(dir, "crio.sock") + "\n"})
}

func TestNRISocket(t *testing.T) {
	config, _ := setup(nil, "")
	config.NRI = filepath.Join(t.TempDir(), "nri.sock")
	for name, advice := range map[string]string{"containerd": "disable = false under [plugins.'io.containerd.nri.v1.nri']", "cri-o": "enable_nri = true under [crio.nri]"} {
		config.Runtime = containerd{name: name}
		var out strings.Builder
		if Run(t.Context(), &out, config) || !strings.Contains(out.String(), "FAIL  NRI") || !strings.Contains(out.String(), config.NRI) || !strings.Contains(out.String(), advice) {
			t.Errorf("without NRI in %s: %s", name, out.String())
		}
	}
	config.Runtime = containerd{}
	var out strings.Builder
	l, err := net.Listen("unix", config.NRI)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !Run(t.Context(), &out, config) || !strings.Contains(out.String(), "ok    NRI") {
		t.Errorf("with a runtime: %s", out.String())
	}
}

// Whether the runtime requires kubecri is what the node says, and not known until it does.
func TestRuntimeRequiresKubecri(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "nri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for status, want := range map[corev1.ConditionStatus]string{
		"":                      "note  NRI        whether the runtime starts containers without their devices while kubecri is away is not known",
		corev1.ConditionTrue:    "note  NRI        what it does",
		corev1.ConditionFalse:   "ok    NRI        what it does",
		corev1.ConditionUnknown: "note  NRI        what it does",
	} {
		config, kube := setup(nil, "")
		config.NRI = l.Addr().String()
		n := nodeA()
		if status != "" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: "kubeslot.io/StartsWithoutKubecri", Status: status, Message: "what it does"}}
		}
		if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""); err != nil {
			t.Fatal(err)
		}
		wantReport(t, config, true, []string{want})
	}
}

// broker is the pod as one that the controller made for Configuration cam.
func broker(p *corev1.Pod) *corev1.Pod {
	p.Labels = map[string]string{akriv0.BrokerLabel: "cam"}
	return p
}

func TestPod(t *testing.T) {
	for _, test := range []struct {
		name   string
		pod    *corev1.Pod
		holder string
		well   bool
		says   []string
	}{
		{"to be created", pod("node-a", good), "", true,
			[]string{"main gets slot cam-8120fe-0 for akri.sh/cam, which is free: CDI device akri.sh/cam=8120fe, environment PASSWORD_8120FE URL_8120FE AKRI_DEVICES", "side gets no devices"}},
		{"a broker", broker(pod("node-a", good)), "", true, []string{"environment PASSWORD URL AKRI_DEVICES"}},
		{"running", pod("node-a", good), "u1@node-a", true, []string{"which it holds"}},
		{"held by another", pod("node-a", good), "u2@node-b", false,
			[]string{"FAIL  container", "main would be refused", `slot cam-8120fe-0 is claimed by container "main" of pod ns/pod-u2 on node node-b`}},
		{"not assigned", pod("node-a", ""), "", false, []string{"main would be refused", "akri.sh/cam"}},
		{"beyond the capacity", pod("node-a", strings.Replace(good, "8120fe-0", "8120fe-2", 1)), "", false, []string{"main would be refused", "capacity 2"}},
		{"another node's device", pod("node-a", strings.Replace(good, "8120fe", slot.InstanceHash("foo1", true, "", slot.ShortHash), 1)), "", false,
			[]string{"cannot be reached from this node"}},
		{"elsewhere", pod("node-b", good), "", false, []string{"FAIL  pod", "on node node-b, not node-a"}},
		{"not bound", pod("", ""), "", false, []string{"FAIL  pod", "not bound"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := setup(test.pod, test.holder)
			wantReport(t, c, test.well, test.says)
		})
	}
}

// Of a Configuration that a few nodes discover, this node reaches what they report when
// its labels are selected.
func TestDevicesThatOthersDiscover(t *testing.T) {
	for labels, well := range map[string]bool{"hall-3": true, "hall-4": false} {
		c, kube := setup(pod("node-a", strings.Replace(good, "8120fe", slot.InstanceHash("foo1", true, "", slot.ShortHash), 1)), "")
		node := nodeA()
		node.Labels = map[string]string{"hall": labels}
		if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			t.Fatal(err)
		}
		configurations := c.Client.AkriV0().Configurations("default")
		cam, err := configurations.Get(t.Context(), "cam", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cam.Spec.Discovery = &akriv0.Discovery{Replicas: 1, NodeSelector: map[string]string{"hall": "hall-3"}}
		if _, err := configurations.Update(t.Context(), cam, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		says := []string{"reaches 2 devices", "main gets slot"}
		if !well {
			says = []string{"reaches 0 devices", "cannot be reached"}
		}
		wantReport(t, c, well, says)
	}
}

func wantReport(t *testing.T, c Config, well bool, says []string) {
	t.Helper()
	var out strings.Builder
	if got := Run(t.Context(), &out, c); got != well {
		t.Errorf("well: %t, want %t", got, well)
	}
	for _, part := range says {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the report does not say %q:\n%s", part, out.String())
		}
	}
	if well == strings.Contains(out.String(), "FAIL") {
		t.Errorf("well is %t, and the report:\n%s", well, out.String())
	}
}
