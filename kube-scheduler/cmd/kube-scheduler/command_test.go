package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/configz"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// A scheduler leads when it begins to schedule, though there is no pod, and not before: it reads
// what there is first, and may be a standby for long.
func TestIdleLeader(t *testing.T) {
	leads, lists := make(chan struct{}), atomic.Int64{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Get("sendInitialEvents") != "":
			http.Error(w, "lists come by themselves", http.StatusBadRequest)
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			select {
			case <-leads:
				t.Errorf("it leads, and reads %s yet", r.URL)
			default:
			}
			if r.URL.Path == "/api/v1/pods" {
				lists.Add(1)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
		}
	}))
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged // the test may run twice
	t.Cleanup(func() { configz.Delete("componentconfig") })
	opts, cmd := options.NewOptions(), &cobra.Command{}
	for _, flags := range opts.Flags.FlagSets {
		cmd.Flags().AddFlagSet(flags)
	}
	if err := cmd.ParseFlags([]string{"--master=" + api.URL, "--secure-port=0", "--leader-elect=false"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	lead := func() {
		if lists.Load() == 0 {
			t.Error("it leads, and has not listed pods yet")
		}
		close(leads)
	}
	go func() { ended <- run(ctx, cmd, opts, lead, func() error { return nil }, nil) }()
	select {
	case <-leads:
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatalf("waited a minute for the scheduler to lead; it has listed pods %d times", lists.Load())
	}
	cancel()
	<-ended
}

// The command takes upstream's flags and ours, and says so in its help.
func TestFlags(t *testing.T) {
	added := func(sections *cliflag.NamedFlagSets) {
		sections.FlagSet("devices").Bool("added", false, "a flag of ours")
	}
	ours, upstream := newCommand(func() {}, func() error { return nil }, added), app.NewSchedulerCommand()
	upstream.Flags().VisitAll(func(f *pflag.Flag) {
		if got := ours.Flags().Lookup(f.Name); got == nil || got.DefValue != f.DefValue || got.Usage != f.Usage {
			t.Errorf("flag --%s is %+v, want %+v", f.Name, got, f)
		}
	})
	usage := ours.UsageString()
	if !strings.Contains(usage, "--leader-elect") || !strings.Contains(usage, "Devices flags:\n\n      --added") || ours.Use != upstream.Use {
		t.Errorf("usage: %s", usage)
	}
	if err := ours.ParseFlags([]string{"--added"}); err != nil {
		t.Error(err)
	}
}

// /readyz fails for who may read it, and nothing else does.
func TestReadiness(t *testing.T) {
	allow := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string,
		error) {
		if a.GetVerb() == "get" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "no", nil
	})
	away := errors.New(`plugin "widget" is away`)
	for _, tc := range []struct {
		path, verb string
		ready      error
		decision   authorizer.Decision
		err        error
	}{
		{"/readyz", "get", nil, authorizer.DecisionAllow, nil},
		{"/readyz", "get", away, authorizer.DecisionNoOpinion, away},
		{"/readyz", "post", away, authorizer.DecisionDeny, nil},
		{"/livez", "get", away, authorizer.DecisionAllow, nil},
		{"/healthz", "get", away, authorizer.DecisionAllow, nil},
	} {
		r := readiness{allow, func() error { return tc.ready }}
		decision, _, err := r.Authorize(t.Context(), authorizer.AttributesRecord{Path: tc.path, Verb: tc.verb})
		if decision != tc.decision || err != tc.err {
			t.Errorf("%s %s: %v, %v", tc.verb, tc.path, decision, err)
		}
	}
}
