package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	fakediscovery "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	akrifake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// TestScenarios runs the stories in testdata: a cluster, and what the commands print of
// it. Lines of the input go to where they are mentioned. Commands:
//
//	cluster                                         start anew
//	configuration name=cam [ns=] [capacity=2] [unique=none|Pod|Node] [deleting] [discovery=(zone:a)]
//	    [labels=(k:v)] [handler=] [allocator=DRA] [current=DRA [held=1]]
//	node name=a [cordoned] [notready] [taint=key] [labels=(zone:a)] [cpu=4] [pods=110] [advertises=(cam:4)] [others=(nvidia.com/gpu:1)] [kubelet=v1.37.2] [kubecri=namespace [plugin=kubecri] [without=True|False]]
//	devices node=a [of=cam] [ns=] [labels=(k:v)]    lines "id [lost] [local]": the node's DeviceSlice, and the Instances of it
//	problem node=a [of=cam] reason=                 input: the message, into the node's DeviceSlice
//	pod name=p [ns=] [asks=(cam:1,main/cam:1)] [node=a] [has=(yard-0,main/cam/yard-0)] [plugin=(resource/...)] [priority=] [scheduler=] [gate=] [nominated=a]
//	    [deleting] [cpu=] [others=(nvidia.com/gpu:1)] [selector=(zone:a)] [starting] [waiting=Reason]
//	    [failed=Reason] [ended=1 [why=OOMKilled]] [restart=Never] [ready] [new] [holder=uid] [labels=(k:v)]
//	    [init] [static] [unread] [requires=kubecri] [claims=(c:object) [template]] [extendedclaim=object]
//	    input: what the scheduler says, or the kubelet with waiting and failed
//	claim slot=yard-0 node=a pod=p|by=p [new] [promised=10m] [again] [runs]   the node has claimed it; with runs its container runs, and the node claims it again
//	claim slot=yard-0 node=a resourceclaim=c         a ResourceClaim has it
//	resourceclaim name=c [ns=] [of=cam] [count=1] [device=(yard)] [pods=(p)]   allocated with device; pods use it
//	deviceclass [of=cam] [extended] [foreign]       with the Configuration's extended resource; not the controller's
//	server version=v1.35.0                          of the API server
//	usage slot=yard-0 is=                           an Instance's deviceUsage
//	event pod=p reason=                             input: the message of a warning
//	refused kind=ReplicaSet|Job name=rs [of=Deployment/d] [has=1] [failed] [suspended]   input: why the pods of a ReplicaSet that wants 2, or of a Job, are refused
//	deployed [without=name]                         the definitions, policies and permissions of deploy/
//	delete what=pod/p|node/a|configuration/cam|instances/cam
//	top [width=100] [height=12]                     input: keys; the screen after them, with > for the cursor and ! for trouble
//	lease node=a                                    kubecri of the node has renewed its Lease
//	run [as=guest|viewer|deleter|nodra] [answer=y] [width=80] [broken=events]   input: kubectl kubeslot ...; a
//	    guest may list what is in namespace default, and nothing else,
//	    a viewer may release no slots, and a deleter is refused by the policy. What is broken cannot be listed. With an answer there is a terminal to ask on, with a width one to print on
func TestScenarios(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.do(t, d) })
	})
}

var (
	storyNow = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	long     = metav1.NewTime(storyNow.Add(-time.Hour))
)

type story struct {
	objects   map[string]runtime.Object // by kind/name
	order     []string
	instances map[string]string           // of a device's id
	runs      map[string]bool             // slots whose containers run, though the claim is deleted
	answer    string                      // on the terminal; "" where there is none
	broken    string                      // a resource that cannot be listed; "" for none
	width     int                         // of the terminal; 0 where there is none
	server    string                      // its version; "" for that of these libraries
	tracker   clienttesting.ObjectTracker // has what the last command saw and did
}

func newStory() *story {
	return &story{objects: map[string]runtime.Object{}, instances: map[string]string{}, runs: map[string]bool{}}
}

func (s *story) set(key string, o runtime.Object) {
	if !slices.Contains(s.order, key) {
		s.order = append(s.order, key)
	}
	s.objects[key] = o
}

// args reads the arguments of a command.
type args struct {
	t *testing.T
	*datadriven.TestData
}

func (a args) has(key string) bool { return a.HasArg(key) }

func (a args) get(key, fallback string) string {
	if vals := a.all(key); len(vals) > 0 {
		return vals[0]
	}
	return fallback
}

func (a args) all(key string) []string {
	for _, arg := range a.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

// pairs reads (k:v,...).
func (a args) pairs(key string) map[string]string {
	found := map[string]string{}
	for _, pair := range a.all(key) {
		k, v, _ := strings.Cut(pair, ":")
		found[k] = v
	}
	return found
}

func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	name, ns := a.get("name", ""), a.get("ns", "default")
	switch d.Cmd {
	case "cluster":
		*s = *newStory()
	case "configuration":
		s.set("configuration/"+ns+"/"+name, configurationOf(a, ns, name))
	case "node":
		s.set("node/"+name, nodeOf(a, name))
	case "devices":
		s.devices(a, ns)
	case "problem":
		p := v1alpha1.Problem{Reason: a.get("reason", ""), Message: d.Input}
		if of := a.get("of", ""); of != "" {
			p.Configuration = &v1alpha1.ConfigurationReference{Namespace: ns, Name: of}
		}
		slice := s.slice(a.get("node", ""))
		slice.Spec.Problems = append(slice.Spec.Problems, p)
	case "pod":
		s.set("pod/"+ns+"/"+name, s.pod(a, ns, name))
	case "claim":
		s.claim(a, ns)
	case "resourceclaim":
		s.resourceClaim(a, ns, name)
	case "deviceclass":
		s.deviceClass(a)
	case "lease":
		s.lease(a.get("node", ""))
	case "usage":
		n := s.slotName(t, a.get("slot", ""))
		in := s.objects["instance/"+n.Instance].(*akriv0.Instance)
		in.Spec.DeviceUsage = map[string]string{n.String(): a.get("is", "")}
	case "event":
		pod := s.objects["pod/"+ns+"/"+a.get("pod", "")]
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("e%d", len(s.order))}, Type: corev1.EventTypeWarning,
			Reason: a.get("reason", ""), Message: d.Input, ReportingController: a.get("from", "kubelet"), LastTimestamp: long}
		if pod != nil {
			e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: a.get("pod", ""), UID: pod.(*corev1.Pod).UID}
		}
		s.set("event/"+e.Name, e)
	case "refused":
		s.refused(a, ns, name, d.Input)
	case "server":
		s.server = a.get("version", "")
	case "deployed":
		s.deploy(t, a.get("without", ""))
	case "delete":
		kind, of, _ := strings.Cut(a.get("what", ""), "/")
		if kind == "instances" {
			for key, o := range s.objects {
				if in, ok := o.(*akriv0.Instance); ok && in.Spec.ConfigurationName == of {
					delete(s.objects, key)
				}
			}
		} else {
			delete(s.objects, a.get("what", ""))
		}
	case "top":
		width, _ := strconv.Atoi(a.get("width", "100"))
		height, _ := strconv.Atoi(a.get("height", "12"))
		return drawn(s.top(t, width, height, strings.Fields(d.Input)...))
	case "run":
		line := strings.TrimSpace(strings.TrimPrefix(strings.SplitN(d.Input, "\n", 2)[0], "kubectl kubeslot"))
		words := strings.Fields(line)
		for i := range words {
			if words[i] == `""` {
				words[i] = ""
			}
		}
		s.answer = a.get("answer", "")
		s.width, _ = strconv.Atoi(a.get("width", "0"))
		s.broken = a.get("broken", "")
		return s.run(t, a.get("as", ""), words...)
	default:
		d.Fatalf(t, "no command %s", d.Cmd)
	}
	return ""
}

// clients are fakes with the story's objects.
func (s *story) clients() (*kubefake.Clientset, *akrifake.Clientset, *dynamicfake.FakeDynamicClient) {
	var core, ours, definitions []runtime.Object
	for _, key := range s.order {
		switch o := s.objects[key].(type) {
		case nil:
		case *akriv0.Configuration, *akriv0.Instance, *v1alpha1.DeviceSlice, *v1alpha1.SlotClaim:
			ours = append(ours, o.DeepCopyObject())
		case *unstructured.Unstructured:
			definitions = append(definitions, o.DeepCopyObject())
		default:
			core = append(core, o.DeepCopyObject())
		}
	}
	kube := kubefake.NewClientset(append(core, s.namespaces()...)...)
	kube.PrependReactor("list", "pods", selectPods(kube.Tracker()))
	server := &version.Info{GitVersion: cmp.Or(s.server, "v1.37.2")}
	kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = server
	return kube, akrifake.NewSimpleClientset(ours...), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), definitions...)
}

// options of a command in namespace default, and what it writes.
func (s *story) options(as string) (o *options, out, errOut *bytes.Buffer) {
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(s.answer + "\n")
	o = &options{kube: genericclioptions.NewConfigFlags(true), streams: streams,
		now: func() time.Time { return storyNow }, completeTime: completeTime}
	o.terminal = func() bool { return s.answer != "" }
	o.width = func() int { return s.width }
	namespace := "default"
	o.kube.Namespace = &namespace
	kube, akri, definitions := s.clients()
	names := s.metadata()
	if as == "guest" {
		kube.PrependReactor("list", "*", forbid)
		akri.PrependReactor("list", "*", forbid)
		names.PrependReactor("list", "*", forbid)
	}
	if as == "nodra" {
		kube.PrependReactor("list", "resourceclaims", forbidAll)
		kube.PrependReactor("list", "deviceclasses", forbidAll)
	}
	if s.broken != "" {
		kube.PrependReactor("list", s.broken, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
		})
	}
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().DeepCopyObject().(*authorizationv1.SelfSubjectAccessReview)
		review.Status.Allowed = as != "viewer"
		return true, review, nil
	})
	akri.PrependReactor("delete", "slotclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, s.deleteClaim(akri.Tracker(), a.(clienttesting.DeleteActionImpl), as)
	})
	s.tracker = akri.Tracker()
	o.connected = source.For(kube, akri, definitions, names, namespace)
	return o, out, errOut
}

// forbid refuses what is not of namespace default.
func forbid(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetNamespace() == "default" {
		return false, nil, nil
	}
	return forbidAll(action)
}

func forbidAll(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("a guest may not"))
}

func (s *story) run(t *testing.T, as string, line ...string) string {
	o, out, errOut := s.options(as)
	root := newRoot(o)
	root.SetArgs(line)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ran, err := root.ExecuteContextC(ctx)
	code := o.exitCode(ctx, ran.Name(), err)
	text := out.String()
	if errOut.Len() > 0 {
		text += "(stderr) " + errOut.String()
	}
	if code != 0 {
		text += fmt.Sprintf("(exit code %d)\n", code)
	}
	return blankLines(text)
}

// blankLines marks empty lines, which datadriven takes for the end.
func blankLines(text string) string { return strings.ReplaceAll(text, "\n\n", "\n·\n") }
