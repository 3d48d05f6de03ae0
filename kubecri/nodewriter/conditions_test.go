package nodewriter

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubeslot/kubeslot/test/await"
)

func TestConditionsThatAreNews(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	bad := Condition{Type: "kubeslot.io/X", Status: corev1.ConditionTrue, Reason: "Because", Message: "of it"}
	is := func(status corev1.ConditionStatus, message string, since metav1.Time) corev1.NodeCondition {
		return corev1.NodeCondition{Type: "kubeslot.io/X", Status: status, Reason: "Because", Message: message, LastHeartbeatTime: since, LastTransitionTime: since}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	changed := is(corev1.ConditionTrue, "of it", now)
	same := changed
	same.LastTransitionTime = then
	for name, test := range map[string]struct{ has, want []corev1.NodeCondition }{
		"a new one":       {[]corev1.NodeCondition{ready}, []corev1.NodeCondition{changed}},
		"as it is":        {[]corev1.NodeCondition{ready, is(corev1.ConditionTrue, "of it", then)}, nil},
		"another status":  {[]corev1.NodeCondition{is(corev1.ConditionFalse, "of it", then)}, []corev1.NodeCondition{changed}},
		"another message": {[]corev1.NodeCondition{is(corev1.ConditionTrue, "of that", then)}, []corev1.NodeCondition{same}},
	} {
		if diff := cmp.Diff(test.want, news(test.has, []Condition{bad}, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The node says what was set last, the kubelet's conditions stay, and nothing is written
// that the node says already.
func TestConditions(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	client := fake.NewClientset(node)
	countVersions(client)
	factory := informers.NewSharedInformerFactory(client, 0)
	r, err := New(Config{Node: "a", Client: client, Nodes: factory.Core().V1().Nodes()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	factory.Start(ctx.Done())
	go func() { defer close(ended); r.Run(ctx) }()
	defer func() { cancel(); <-ended; factory.Shutdown() }()

	says := func(want string) {
		t.Helper()
		await.That(t, "conditions "+want, func() (bool, string) {
			n, err := client.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			slices.SortFunc(n.Status.Conditions, func(a, b corev1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
			for _, c := range n.Status.Conditions {
				got += string(c.Type) + "=" + string(c.Status) + ":" + c.Message + " "
			}
			return strings.TrimSpace(got) == want, got
		})
	}
	r.Set(Condition{Type: "kubeslot.io/X", Status: corev1.ConditionFalse, Message: "no"})
	says("Ready=True: kubeslot.io/X=False:no")
	r.Set(Condition{Type: "kubeslot.io/X", Status: corev1.ConditionTrue, Message: "yes"})
	says("Ready=True: kubeslot.io/X=True:yes")
	r.Set(Condition{Type: "kubeslot.io/X", Status: corev1.ConditionTrue, Message: "yes"})
	patches := func() (n int) {
		for _, action := range client.Actions() {
			if action.GetVerb() == "patch" {
				n++
			}
		}
		return n
	}
	r.Set(Condition{Type: "kubeslot.io/Y", Status: corev1.ConditionTrue, Message: strings.Repeat("y", 2*maxMessage)})
	says("Ready=True: kubeslot.io/X=True:yes kubeslot.io/Y=True:" + strings.Repeat("y", maxMessage-3) + "...")
	if got := patches(); got != 3 {
		t.Errorf("%d patches, want 3", got)
	}
}

// A message is text that the API server gives back as it is, else the Node would be patched for ever.
func TestMessagesAreUTF8(t *testing.T) {
	r := newRig(t, fake.NewClientset())
	long := "\xff" + strings.Repeat("é", maxMessage)
	r.Set(Condition{Type: "kubeslot.io/X", Status: corev1.ConditionTrue, Message: long})
	r.Writer.mu.Lock()
	defer r.Writer.mu.Unlock()
	m := r.conditions["kubeslot.io/X"].Message
	if !utf8.ValidString(m) || len(m) > maxMessage || !strings.HasPrefix(m, "?é") {
		t.Errorf("the message is %q", m)
	}
}
