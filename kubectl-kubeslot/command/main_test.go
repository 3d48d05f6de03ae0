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

	"k8s.io/cli-runtime/pkg/genericiooptions"
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
		if code := Main(t.Context(), genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &errOut}); code != 1 || out.Len() > 0 {
			t.Errorf("%s: it exits with %d and prints %q", flag, code, &out)
		}
		logged := regexp.MustCompile(`(?m)verb="GET" url="` + regexp.QuoteMeta(server.URL) + `/apis/akri.sh/v0/configurations\?\S+" status="404`)
		if logged.Match(errOut.Bytes()) != shown {
			t.Errorf("%s: requests are shown: %v, want %v:\n%s", flag, !shown, shown, &errOut)
		}
	}
}
