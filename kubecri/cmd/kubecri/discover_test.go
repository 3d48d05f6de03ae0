package main

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/discoveryworker"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
)

// TestMain is also the discovery worker, as kubecri itself is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == discoveryworker.Command {
		main()
	}
	os.Exit(m.Run())
}

// Handlers that parse what comes from a network are asked in the worker, others here.
func TestWhereHandlersRun(t *testing.T) {
	o := newOptions()
	flags := o.flags()
	if err := flags.FlagSet("discovery").Parse([]string{"--discovery-handlers-directory="}); err != nil {
		t.Fatal(err)
	}
	o.nodeName, o.stateDir = "node-a", t.TempDir()
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	all, _, err := o.sources(t.Context(), metrics.New(registry{}))
	if err != nil {
		t.Fatal(err)
	}
	// None is a handler that Secrets must not go to.
	request := discovery.Request{Details: "a: [", Secret: true}
	for _, b := range builtIns {
		name, apart := b.name, slices.Contains(apart, b.name)
		named, _ := all.Sources(name)
		err := named[0].Handler.Discover(t.Context(), request, func(discovery.Result) {})
		if !errors.Is(err, discovery.ErrInvalid) || !strings.Contains(err.Error(), "not YAML") {
			t.Errorf("%s: Discover() = %v, want that the details are not YAML", name, err)
		}
		inWorker := strings.HasSuffix(reflect.TypeOf(named[0].Handler).PkgPath(), "discovery/remote")
		if inWorker != apart {
			t.Errorf("%s runs in the worker: %t, want %t", name, inWorker, apart)
		}
	}
}
