package claims

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// writerTo is a Writer to an API server that handles calls so.
func writerTo(t *testing.T, handle http.HandlerFunc) *Writer {
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	client, err := NewClient(&restclient.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &Writer{Client: client, Clock: clock.RealClock{}}
}

// Each call is bounded, by its client and at the API server, so that a claim does not
// come long after it was given up.
func TestCallsAreBounded(t *testing.T) {
	timeouts := make(chan string, 1)
	w := writerTo(t, func(w http.ResponseWriter, req *http.Request) {
		timeouts <- req.URL.Query().Get("timeout")
		w.WriteHeader(http.StatusForbidden)
	})
	if _, err := w.Take(t.Context(), of("p", "a", "0")); !apierrors.IsForbidden(err) {
		t.Errorf("answer: %v", err)
	}
	if got := <-timeouts; got != callTimeout.String() {
		t.Errorf("the API server is to answer within %q, want %v", got, callTimeout)
	}
}

// A hundred pods at once must not make so many calls that these run into their timeout.
func TestCallsOfAllPodsAreLimited(t *testing.T) {
	const pods = 3 * maxCalls
	var mu sync.Mutex
	underWay, most := 0, 0
	full := make(chan struct{})
	isFull := sync.OnceFunc(func() { close(full) })
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		underWay += n
		if most = max(most, underWay); underWay == maxCalls {
			isFull()
		}
	}
	w := writerTo(t, func(w http.ResponseWriter, _ *http.Request) {
		count(1)
		defer count(-1)
		<-full // none is answered before as many as may be are there
		w.WriteHeader(http.StatusForbidden)
	})
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			if _, err := w.Take(t.Context(), of(fmt.Sprint("p", i), "a", fmt.Sprint(i))); !apierrors.IsForbidden(err) {
				t.Errorf("pod %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if most != maxCalls {
		t.Errorf("%d calls were under way at once, want %d", most, maxCalls)
	}
}
