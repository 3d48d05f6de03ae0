package admit

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
)

var (
	node       = admittest.Node
	pod        = admittest.Pod
	good       = admittest.Good
	requesting = admittest.Requesting
	assigned   = admittest.Assigned
)

// onlyWidgets is a node whose device plugins give out example.com/widget.
func onlyWidgets(name types.ResourceName) bool { return name == "example.com/widget" }

// widgets is the pod, whose container "main" asks for example.com/widget in its spec.
func widgets(name corev1.ResourceName) *corev1.Pod {
	p := requesting("")
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse("2"), "cpu": resource.MustParse("1")}
	return p
}

const (
	// asking is what a pod's author writes, placed what becomes of it.
	asking = `{"runningcontainer":{"main":{"requests":{"example.com/widget":2,"none":0}}}}`
	placed = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"example.com/widget":2},"allocatefrom":{"resource/group/w/0":"resource/group/w/7"}},"side":{}}}`
	// placedOnly is for what the spec asks for.
	placedOnly = `{"nodename":"node-a","initcontainer":{"main":{"allocatefrom":{"resource/group/w/0":"resource/group/w/7"}}}}`
)

// What is for device plugins, and what must not start without them.
func TestDecideOnDevicePlugins(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		container   string
		spec        *corev1.Pod
		assigned    bool
		ignored     bool
		errors      []string
	}{
		{name: "assigned", annotations: assigned(placed), spec: requesting(""), assigned: true},
		{name: "assigned, pod not seen yet", annotations: assigned(placed), assigned: true},
		{name: "assigned for what the spec asks, to an init container", annotations: assigned(placedOnly), spec: widgets("example.com/widget"), assigned: true},
		{name: "the other container", annotations: assigned(placed), container: "side", spec: requesting("")},
		{name: "ephemeral container", annotations: assigned(placed), container: "debug", spec: requesting("")},
		{name: "slots alone", annotations: assigned(good), spec: requesting("1")},
		{name: "the author asks, no scheduler of ours", annotations: map[string]string{assignment.Annotation: asking},
			errors: []string{"example.com/widget", "without Kubeslot's plugins", "spec.nodeName"}},
		{name: "and its spec is known", annotations: map[string]string{assignment.Annotation: asking}, spec: requesting(""), errors: []string{`scheduler "other"`}},
		{name: "the author's other container", annotations: map[string]string{assignment.Annotation: asking}, container: "side", spec: requesting("")},
		{name: "another pod's assignment", annotations: map[string]string{assignment.Annotation: placed, assignment.HolderAnnotation: "u0"}, errors: []string{"another pod's UID"}},
		{name: "the spec asks a plugin of this node, no scheduler of ours", spec: widgets("example.com/widget"), errors: []string{"example.com/widget", `scheduler "other"`}},
		{name: "the spec asks, and only slots are assigned", annotations: assigned(good), spec: widgets("example.com/widget"), errors: []string{"example.com/widget", "--devschedpath"}},
		{name: "the spec asks the kubelet's device plugins", spec: widgets("example.com/other")},
		{name: "static pod that asks", annotations: map[string]string{assignment.Annotation: asking,
			assignment.SourceAnnotation: "file"}, ignored: true},
		{name: "static pod whose spec asks", annotations: map[string]string{assignment.SourceAnnotation: "file"},
			spec: widgets("example.com/widget"), ignored: true},
		{name: "for another node", annotations: assigned(strings.Replace(placed, "node-a", "node-b", 1)), errors: []string{"node-b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decided(t, test.annotations, test.container, test.spec, test.errors)
			if (got.assigned != nil) != test.assigned || (got.ignored != nil) != test.ignored || got.none() != (!test.assigned && len(got.grants) == 0) {
				t.Errorf("got %+v, want assigned %t, ignored %t", got, test.assigned, test.ignored)
			}
			if test.assigned && test.spec != nil {
				want := specRequests(test.spec, "main")
				if kube := got.assigned.GetContainerInPod("main").KubeRequests; len(kube) != len(want) {
					t.Errorf("KubeRequests %v, want %v", kube, want)
				}
			}
		})
	}
}

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		container   string
		spec        *corev1.Pod
		grants      int
		requested   int64
		ignored     bool
		errors      []string
	}{
		{name: "nothing known, nothing assigned"},
		{name: "requests nothing", spec: requesting("")},
		{name: "requests none", spec: requesting("0")},
		{name: "assigned, pod not seen yet", annotations: assigned(good), grants: 1, requested: 1},
		{name: "assigned", annotations: assigned(good), spec: requesting("1"), grants: 1, requested: 1},
		{name: "the spec counts, not the annotation", annotations: assigned(good), spec: requesting("3"), grants: 1, requested: 3},
		{name: "the other container", annotations: assigned(good), container: "side", spec: requesting("1")},
		{name: "ephemeral container", annotations: assigned(good), container: "debug", spec: requesting("1")},
		{name: "assigned to a container that asks for nothing", annotations: assigned(good), spec: requesting(""), grants: 1},
		{name: "requests, and no assignment", spec: requesting("2"), errors: []string{"akri.sh/cam", `scheduler "other"`, "nodeName"}},
		{name: "requests, and somebody wrote an assignment", spec: requesting("1"),
			annotations: map[string]string{assignment.Annotation: good}, errors: []string{"akri.sh/cam"}},
		{name: "another pod's assignment", spec: requesting("1"),
			annotations: map[string]string{assignment.Annotation: good, assignment.HolderAnnotation: "u0"}, errors: []string{"another pod's UID", "u0"}},
		{name: "static pod", spec: requesting("1"), annotations: map[string]string{assignment.SourceAnnotation: "file"},
			ignored: true},
		{name: "static pod that requests nothing", spec: requesting(""),
			annotations: map[string]string{assignment.SourceAnnotation: "http"}},
		{name: "static pod without a mirror", annotations: map[string]string{assignment.SourceAnnotation: "file"}},
		{name: "not static", spec: requesting("1"), annotations: map[string]string{assignment.SourceAnnotation: "api"},
			errors: []string{"akri.sh/cam"}},
		{name: "malformed, and requests", annotations: assigned("{"), spec: requesting("1"), errors: []string{"JSON"}},
		{name: "malformed, and requests nothing", annotations: assigned("{"), spec: requesting(""), errors: []string{"JSON"}},
		{name: "malformed, and not seen yet", annotations: assigned("{"), errors: []string{"JSON"}},
		{name: "malformed slot", annotations: assigned(strings.Replace(good, "cam-a1-0", "cam", 1)), spec: requesting("1"), errors: []string{"allocatefrom"}},
		{name: "malformed without holder, not seen yet", annotations: map[string]string{assignment.Annotation: "{"}},
		{name: "for another node", annotations: assigned(strings.Replace(good, "node-a", "node-b", 1)), spec: requesting("1"), errors: []string{"node-b"}},
		{name: "assigned nothing", annotations: assigned(`{"nodename":"node-a"}`), spec: requesting("1"), requested: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decided(t, test.annotations, test.container, test.spec, test.errors)
			if len(got.grants) != test.grants || got.requested["cam"] != test.requested || (got.ignored != nil) != test.ignored {
				t.Errorf("got %+v, want %d grants, %d requested, ignored %t", got, test.grants, test.requested, test.ignored)
			}
		})
	}
}

// anySignature is what a node without keys of schedulers takes.
var anySignature = (*signing.Verifier)(nil).Verify

// An assignment without a valid signature is as bad as one that cannot be read: all
// containers of the pod wait, and those of pods without an assignment do not.
func TestAnAssignmentThatIsNotSigned(t *testing.T) {
	refuse := func(_ map[string]string, uid, on string) error {
		if uid != pod.UID || on != node {
			t.Errorf("asked about pod %s on node %s", uid, on)
		}
		return errors.New("annotation kubeslot.io/signature is missing")
	}
	for name, spec := range map[string]*corev1.Pod{"seen": requesting("1"), "not seen yet": nil, "requests nothing": requesting("")} {
		_, err := decide(node, assigned(good), pod, "main", spec, onlyWidgets, refuse)
		if err == nil || !strings.Contains(err.Error(), "kubeslot.io/signature is missing") || !strings.Contains(err.Error(), "--assignment-public-keys-file") {
			t.Errorf("%s: %v, want the missing signature and where its keys are", name, err)
		}
	}
	for name, annotations := range map[string]map[string]string{"no assignment": nil,
		"of a static pod": {assignment.SourceAnnotation: "file"}} {
		if got, err := decide(node, annotations, pod, "main", requesting(""), onlyWidgets, refuse); err != nil || !got.none() {
			t.Errorf("%s: %+v, %v, want a container that starts without devices", name, got, err)
		}
	}
}

// Nothing that can be written in an annotation may stop the process.
func FuzzDecide(f *testing.F) {
	f.Add(good, "u1", "api")
	f.Add(`{"nodename":"node-a","initcontainer":{"main":null}}`, "u1", "")
	f.Add(placed, "u1", "api")
	f.Add(asking, "", "")
	f.Add(`{"nodename":"node-a","runningcontainer":{"main":{"allocatefrom":{"akri.sh/":"-","akri.sh/x/99999999999999":"x-0"}}}}`, "u1", "")
	f.Fuzz(func(t *testing.T, text, holder, source string) {
		annotations := map[string]string{assignment.Annotation: text, assignment.HolderAnnotation: holder,
			assignment.SourceAnnotation: source}
		for _, spec := range []*corev1.Pod{nil, requesting(""), requesting("1")} {
			got, err := decide(node, annotations, pod, "main", spec, onlyWidgets, anySignature)
			if err == nil && spec != nil && source != "file" && source != "http" && len(spec.Spec.Containers[0].Resources.Requests) > 0 && got.none() {
				t.Errorf("a container that requests devices starts without")
			}
		}
	})
}

// The API server has a static pod as its mirror, under another UID.
func TestAStaticPodIsToldThatItGetsNoSlots(t *testing.T) {
	mirror := requesting("1")
	mirror.UID = "of the mirror"
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: pod.UID}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := pods.Add(mirror); err != nil {
		t.Fatal(err)
	}
	a := &Admitter{Config: Config{Node: node, Pods: corelisters.NewPodLister(pods)}}
	got, err := a.entitlement(map[string]string{assignment.SourceAnnotation: "file"}, pod, "main")
	if err != nil || !got.none() || got.ignored == nil {
		t.Fatalf("entitlement() = %+v, %v, want no entitlement and a warning", got, err)
	}
	for _, part := range []string{"akri.sh/cam", "static pod"} {
		if !strings.Contains(got.ignored.Error(), part) {
			t.Errorf("the warning %q does not say %q", got.ignored, part)
		}
	}
	// Whoever else says to be its mirror is not looked at.
	if got, err := a.entitlement(nil, pod, "main"); err != nil || got.ignored != nil {
		t.Errorf("entitlement() of an ordinary pod = %+v, %v", got, err)
	}
}

// decided is the entitlement of a container, "" for main; an error has to say all of
// errors, and there must be none if it is nil.
func decided(t *testing.T, annotations map[string]string, container string, spec *corev1.Pod, errors []string) entitlement {
	t.Helper()
	if container == "" {
		container = "main"
	}
	got, err := decide(node, annotations, pod, container, spec, onlyWidgets, anySignature)
	if (err != nil) != (errors != nil) {
		t.Fatalf("error %v, want one with %q", err, errors)
	}
	for _, part := range errors {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	return got
}
