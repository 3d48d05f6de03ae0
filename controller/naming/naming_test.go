package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNames(t *testing.T) {
	const aws = "ip-10-0-1-23.eu-central-1.compute.internal"
	long := strings.Repeat("a", 53) + "." + strings.Repeat("b", 199)
	for _, tc := range []struct{ what, got, want string }{
		{"local", Pod("akri-udev-8120fe", "node-a", false), "akri-udev-8120fe-pod"},
		{"shared", Pod("akri-onvif-8120fe", "node-a", true), "node-a-akri-onvif-8120fe-pod"},
		{"dots of the node stay", Pod("cam-8120fe", "a.b", true), "a.b-cam-8120fe-pod"},
		{"dots of the instance go", Pod("c.am-8120fe", "a.b", true), "a.b-c-am-8120fe-pod"},
		{"cut", Pod("akri-onvif-8120fe", aws, true), "ip-10-0-1-23.eu-central-1.compute.internal-akri-onvif-" + digest(aws+"-akri-onvif-8120fe-pod")},
		{"cut before a dot", Pod("cam-8120fe", long, true), strings.Repeat("a", 53) + "-" + digest(long+"-cam-8120fe-pod")},
		{"job", Job("cam-8120fe", 12), "cam-8120fe-12-job"},
		{"service", Service("cam-8120fe"), "cam-8120fe-svc"},
		{"service of a digit", Service("4k-8120fe"), "svc-4k-8120fe-svc"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s, want %s", tc.what, tc.got, tc.want)
		}
	}
	if a, b := Cut(long), Cut(long+"b"); a == b {
		t.Errorf("two names become one: %s", a)
	}
}

// digest is what Cut puts at the end of a name.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}

// What the API server refuses would fail for ever.
func TestNamesAreValid(t *testing.T) {
	for _, node := range []string{"a", strings.Repeat("n", 63), strings.Repeat("n", 253), strings.Repeat("n.", 60) + "n", strings.Repeat("a-", 100) + "b"} {
		for _, instance := range []string{"c-8120fe", strings.Repeat("c", 56) + "-8120fe", "4" + strings.Repeat("-", 40) + "4-8120fe"} {
			for _, shared := range []bool{true, false} {
				pod := Pod(instance, node, shared)
				if problems := validation.IsDNS1123Subdomain(pod); problems != nil {
					t.Errorf("pod %q: %q", pod, problems)
				}
				for k, v := range PodLabels(instance[:len(instance)-7], instance, node, pod) {
					if problems := validation.IsValidLabelValue(v); problems != nil {
						t.Errorf("label %s=%q: %q", k, v, problems)
					}
				}
			}
			if problems := validation.IsDNS1035Label(Service(instance)); problems != nil {
				t.Errorf("service %q: %q", Service(instance), problems)
			}
			if problems := validation.IsDNS1123Label(Job(instance, 1<<62)); problems != nil {
				t.Errorf("job %q: %q", Job(instance, 1<<62), problems)
			}
		}
	}
}

func TestHash(t *testing.T) {
	if Hash("a", "b") == Hash("ab") || Hash("a", "b") == Hash("a", "", "b") {
		t.Error("texts run together")
	}
}

// An owner is the controller of what is made for it, and its deletion need not wait.
func TestOwnedBy(t *testing.T) {
	controller := true
	want := metav1.OwnerReference{APIVersion: "akri.sh/v0", Kind: "Instance", Name: "cam-8120fe", UID: "u",
		Controller: &controller}
	if d := cmp.Diff(want, OwnedBy("Instance", &metav1.ObjectMeta{Name: "cam-8120fe", UID: "u"})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestCutText(t *testing.T) {
	for text, want := range map[string]string{"": "", "äöüß": "äöüß", "äöüßx": "äöü…"} {
		if got := CutText(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
