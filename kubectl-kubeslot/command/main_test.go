package command

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A command that is interrupted has no answer: who asks must not take it for a good one.
func TestInterrupted(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	defer func(before []string) { os.Args = before }(os.Args)
	for _, line := range []string{"doctor", "list", "pod viewer", "release --yes cam-f30c78-0"} {
		t.Run(line, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the client is gone
				interrupt()
				<-r.Context().Done()
			}))
			defer server.Close()
			os.Args = append([]string{"kubectl-kubeslot", "--server", server.URL}, strings.Fields(line)...)
			var out bytes.Buffer
			if code := Main(ctx, genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &out}); code != interrupted || out.Len() > 0 {
				t.Errorf("interrupted it exits with %d and says %q, want %d and nothing", code, &out, interrupted)
			}
		})
	}
}

// -v shows requests on standard error, as that of kubectl; without it client-go's log is not shown.
func TestVerbosity(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	defer func(before []string) { os.Args = before }(os.Args)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for flag, shown := range map[string]bool{"-v=6": true, "--v=6": true, "-v=0": false} {
		os.Args = []string{"kubectl-kubeslot", "--server", server.URL, "list", flag}
		var out, errOut bytes.Buffer
		if code := Main(t.Context(), genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &errOut}); code != 1 ||
			out.Len() > 0 {
			t.Errorf("%s: it exits with %d and prints %q", flag, code, &out)
		}
		logged := regexp.MustCompile(`(?m)verb="GET" url="` + regexp.QuoteMeta(server.URL) + `/apis/akri.sh/v0/configurations\?\S+" status="404`)
		if logged.Match(errOut.Bytes()) != shown {
			t.Errorf("%s: requests are shown: %v, want %v:\n%s", flag, !shown, shown, &errOut)
		}
	}
}

// Where the API server does not answer, the error is kubectl's, and says which one was asked.
func TestUnreachable(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	defer func(before []string) { os.Args = before }(os.Args)
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.Listener.Addr().String()
	server.Close()
	os.Args = []string{"kubectl-kubeslot", "list", "--server", "http://" + address}
	want := "error: The connection to the server " + address +
		" was refused - did you specify the right host or port?\n"
	var out, errOut bytes.Buffer
	code := Main(t.Context(), genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &errOut})
	if code != 1 || out.Len() > 0 || errOut.String() != want {
		t.Errorf("it exits with %d, prints %q and says %q, want %q", code, &out, &errOut, want)
	}
}

// Under its second name the program completes what kubectl passes on, for any shell: a line for each word, and how to
// go on.
func TestCompletesForKubectl(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	defer func(before []string) { os.Args = before }(os.Args)
	for _, tc := range []struct {
		words []string
		want  string
	}{
		{[]string{"po"}, "pods\npo\n:4\n"},
		{[]string{"slots", "--fr"}, "--free\tonly those that nobody has\n:4\n"},
		{[]string{"slots", "-o", "custom-columns"}, "custom-columns\ncustom-columns-file\n:4\n"},
		{[]string{"slots", ""}, ":4\n"}, // there is no cluster
	} {
		os.Args = append([]string{"/usr/bin/kubectl_complete-kubeslot"}, tc.words...)
		var out, errOut bytes.Buffer
		code := Main(t.Context(), genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &errOut})
		if code != 0 || !strings.HasSuffix(out.String(), tc.want) {
			t.Errorf("%q: it exits with %d and prints %q, want %q at the end", tc.words, code, &out, tc.want)
		}
	}
}

// What others wrote into objects must not move the cursor, in errors and in what release says neither.
func TestErrorsArePlain(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	const evil = "\x1b[2J\u202e"
	s := heldByNobody()
	s.objects["node/off"].(*corev1.Node).Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionUnknown, Message: "it is off" + evil}}
	s.objects["claim/cam-f30c78-0"].(*v1alpha1.SlotClaim).Spec.Pod.Name += evil
	s.set("event/gone", &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gone"},
		Reason: "Evicted", Message: "it was" + evil,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "gone"}})
	for line, want := range map[string]string{
		"pod gone":                     "Evicted: it was?[2J?",
		"release --yes cam-f30c78-0":   "it is off?[2J?",
		"release --yes nothing" + evil: "is no slot's name",
		"no-such-command" + evil:       "unknown command",
		"slots --sort-by={.a" + evil:   "--sort-by",
	} {
		text := s.run(t, "", strings.Fields(line)...)
		if !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%q: it says %q, want %q in it, and nothing that moves the cursor", line, text, want)
		}
	}
}
