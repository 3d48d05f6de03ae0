package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A process that does not lead has no queue that grows: nobody takes from it, and there may be new names for weeks.
// Its sources are started when it leads.
func TestSourcesOfAProcessThatDoesNotLead(t *testing.T) {
	var tries atomic.Int32 // to get the Lease
	var free atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(r.URL.Path, "/leases") {
			tries.Add(1)
		}
		switch {
		case !free.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		default:
			_, _ = w.Write(body)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	mgr, err := manager.New(config, manager.Options{
		Scheme: newScheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionNamespace: "kube-system", LeaderElectionID: "test",
		LeaseDuration: new(10 * time.Second), RenewDeadline: new(5 * time.Second),
		RetryPeriod: new(10 * time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	from := source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		close(started)
		return nil
	})
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	})
	if err := add(mgr, &options{workers: 1}, "standby", nothing, from); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	deadline := time.After(2 * time.Minute)
	for tick := time.Tick(time.Millisecond); tries.Load() < 20; {
		select {
		case <-tick:
		case <-started:
			t.Fatal("the source is started before the process leads")
		case <-deadline:
			t.Fatalf("%d tries to get the Lease, want 20", tries.Load())
		}
	}
	free.Store(true)
	select {
	case <-started:
	case <-deadline:
		t.Error("the process leads, and its source is not started")
	}
}
