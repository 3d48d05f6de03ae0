package command

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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
