package ui

import (
	"context"
	"testing"

	"k8s.io/utils/clock"
)

// servePage serves the page of a cluster, and returns its address.
func servePage(t testing.TB, c Live) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	local, err := NewLocal("127.0.0.1:0", About{Cluster: "test"}, NewHub(c, clock.RealClock{}), noEvents)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- local.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
	return local.Address()
}
