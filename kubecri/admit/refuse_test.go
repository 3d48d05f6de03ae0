package admit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// refusing is an Admitter that tells through a real recorder.
func refusing(t *testing.T, broadcaster record.EventBroadcaster, device error) *admit.Admitter {
	t.Helper()
	w := admittest.NewWorld(t, nil)
	a, err := admit.New(admit.Config{Node: admittest.Node, Pods: w.Pods, Claims: w.Claims, DeviceTimeout: time.Second,
		Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, device },
		Events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubecri", Host: admittest.Node})})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func container(assignment string) admit.Container {
	return admit.Container{Pod: admittest.Pod, PodAnnotations: admittest.Assigned(assignment), Sandbox: "box", Name: "main"}
}

func quiet(t *testing.T) context.Context { return klog.NewContext(t.Context(), logr.Discard()) }

// What a pod's author wrote is not told at any length: each try of the kubelet would log it,
// send it and store it in an Event.
func TestARefusalIsNotLong(t *testing.T) {
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	long := strings.Repeat("x", 200_000)
	for name, c := range map[string]admit.Container{
		"a slot": container(strings.Replace(admittest.Good, "cam-a1-0", long, 1)), "no JSON": container(long),
		"a holder": {Pod: admittest.Pod, Sandbox: "box", Name: "main", PodAnnotations: map[string]string{assignment.Annotation: admittest.Good, assignment.HolderAnnotation: long}},
	} {
		_, err := refusing(t, broadcaster, nil).Admit(quiet(t), c)
		if err == nil || len(err.Error()) > 4096 {
			t.Errorf("%s: an error of %d characters: %.200v", name, len(fmt.Sprint(err)), err)
		}
	}
}

// The pod is told once, however often the kubelet tries.
func TestARefusalIsAnEventOfThePod(t *testing.T) {
	for _, test := range []struct {
		name, reason string
		container    admit.Container
		device       error
		says         []string
	}{
		{"must not be used", "DeviceRefused", container(strings.Replace(admittest.Good, "cam-a1-0", "cam-a1-7", 1)), nil,
			[]string{`container "main" of pod ns/cams`, "without its slots cam-a1-7", "capacity 1"}},
		{"cannot be read", "DeviceRefused", container("{"), nil, []string{`container "main" of pod ns/cams`, "without its devices", "JSON"}},
		{"not there", "DeviceUnavailable", container(admittest.Good), errors.New("no report yet"), []string{"slots cam-a1-0", "Instance cam-a1 cannot be reached from this node: no report yet; creation is retried"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := fake.NewClientset()
			broadcaster := record.NewBroadcaster()
			defer broadcaster.Shutdown()
			broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
			a := refusing(t, broadcaster, test.device)
			const tries = 3
			for range tries {
				if _, err := a.Admit(quiet(t), test.container); err == nil {
					t.Fatal("not refused")
				}
			}
			var events []corev1.Event
			await.That(t, fmt.Sprintf("one event with count %d", tries), func() (bool, string) {
				list, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				events = list.Items
				return len(events) == 1 && events[0].Count == tries, fmt.Sprint(events)
			})
			e := events[0]
			ref := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "cams", UID: "u1", FieldPath: "spec.containers{main}"}
			if e.Reason != test.reason || e.Type != corev1.EventTypeWarning || e.InvolvedObject != ref || e.Source.Host != admittest.Node {
				t.Errorf("event %+v, want a warning %s of %+v", e, test.reason, ref)
			}
			for _, part := range test.says {
				if !strings.Contains(e.Message, part) {
					t.Errorf("the event %q does not say %q", e.Message, part)
				}
			}
		})
	}
}

// hanging is an API server that never answers.
type hanging struct{ until <-chan struct{} }

func (h hanging) wait() (*corev1.Event, error) { <-h.until; return nil, errors.New("gone") }

func (h hanging) Create(*corev1.Event) (*corev1.Event, error)        { return h.wait() }
func (h hanging) Update(*corev1.Event) (*corev1.Event, error)        { return h.wait() }
func (h hanging) Patch(*corev1.Event, []byte) (*corev1.Event, error) { return h.wait() }

// Far more refusals than the recorder keeps come back at once, though no event can
// be sent.
func TestARefusalDoesNotWaitForItsEvent(t *testing.T) {
	done := make(chan struct{})
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(hanging{done})
	t.Cleanup(func() { close(done); broadcaster.Shutdown() })
	a := refusing(t, broadcaster, nil)
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		for range 3000 {
			if _, err := a.Admit(quiet(t), container("{")); err == nil {
				t.Error("not refused")
			}
		}
	}()
	await.Next(t, "the refusals, though the API server hangs", refused)
}
