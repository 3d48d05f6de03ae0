package check

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
)

type containerd struct{ err error }

func (c containerd) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.3.7"}, c.err
}

func (c containerd) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": `{"enableCDI":true,"cdiSpecDirs":["/etc/cdi"]}`}}, nil
}

const good = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-a1-0"}}}}`

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

// setup returns a node where all is well, with the pod if there is one.
func setup(p *corev1.Pod, usage string) (Config, *kubefake.Clientset) {
	kube := kubefake.NewClientset()
	c := Config{Node: "node-a", RuntimeEndpoint: "unix:///r.sock", Server: "https://api", Runtime: containerd{}, Kube: kube}
	if p != nil {
		kube = kubefake.NewClientset(p)
		c.Kube, c.Pod = kube, p.Namespace+"/"+p.Name
	}
	allow(kube, func(*authorizationv1.ResourceAttributes) bool { return true })
	c.Akri = fake.NewSimpleClientset(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-a1"},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", CDIName: "akri.sh/cam=a1", Capacity: 1, Nodes: []string{"node-a"},
			BrokerProperties: map[string]string{"URL": "rtsp://a"}, DeviceUsage: map[string]string{"cam-a1-0": usage}}})
	return c, kube
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
			[]string{"ok    runtime    containerd v2.3.7 at unix:///r.sock", "/etc/cdi", "ok    API", "ok    rights", "1 Instances, 1 of them reached by node node-a"}},
		{"runtime down", func(c *Config, _ *kubefake.Clientset) { c.Runtime = containerd{errors.New("no such file")} }, false,
			[]string{"FAIL  runtime", "no such file", "--runtime-endpoint", "ok    API"}},
		{"a right is missing", func(_ *Config, kube *kubefake.Clientset) {
			allow(kube, func(a *authorizationv1.ResourceAttributes) bool {
				return a.Subresource != "status" && a.Verb != "delete"
			})
		}, false, []string{"FAIL  rights", "delete instances, patch nodes/status", "system:kubecri:node-a"}},
		{"no CRDs", func(c *Config, _ *kubefake.Clientset) {
			c.Akri.(*fake.Clientset).PrependReactor("list", "instances", func(ktesting.Action) (bool, runtime.Object, error) {
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

func TestNRISocket(t *testing.T) {
	config, _ := setup(nil, "")
	config.NRI = filepath.Join(t.TempDir(), "nri.sock")
	var out strings.Builder
	if Run(t.Context(), &out, config) || !strings.Contains(out.String(), "FAIL  NRI") || !strings.Contains(out.String(), config.NRI) {
		t.Errorf("without a runtime: %s", out.String())
	}
	l, err := net.Listen("unix", config.NRI)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out.Reset()
	if !Run(t.Context(), &out, config) || !strings.Contains(out.String(), "ok    NRI") || !strings.Contains(out.String(), "note  NRI") {
		t.Errorf("with a runtime: %s", out.String())
	}
}

func TestPod(t *testing.T) {
	for _, test := range []struct {
		name  string
		pod   *corev1.Pod
		usage string
		well  bool
		says  []string
	}{
		{"to be created", pod("node-a", good), "", true,
			[]string{"main gets slot cam-a1-0 for akri.sh/cam, which is free: CDI device akri.sh/cam=a1, environment URL AKRI_DEVICES", "side gets no devices"}},
		{"running", pod("node-a", good), "C:u1:node-a", true, []string{"which it holds"}},
		{"held by another", pod("node-a", good), "C:u2:node-b", false, []string{"FAIL  container", "main would be refused", "pod UID u2 on node node-b"}},
		{"not assigned", pod("node-a", ""), "", false, []string{"main would be refused", "akri.sh/cam"}},
		{"no such Instance", pod("node-a", strings.Replace(good, "cam-a1-0", "cam-zz-0", 1)), "", false, []string{"Instance cam-zz does not exist"}},
		{"elsewhere", pod("node-b", good), "", false, []string{"FAIL  pod", "on node node-b, not node-a"}},
		{"not bound", pod("", ""), "", false, []string{"FAIL  pod", "not bound"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := setup(test.pod, test.usage)
			wantReport(t, c, test.well, test.says)
		})
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
