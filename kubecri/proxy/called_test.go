package proxy

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
)

// Each call is counted once, with the code that the client got: forwarded,
// intercepted and unknown ones alike.
func TestCallsAreToldOf(t *testing.T) {
	type call struct {
		method string
		code   codes.Code
	}
	var mu sync.Mutex
	calls := map[call]int{}
	c := newChain(t, nil)
	c.proxy.config.Called = func(method string, code codes.Code, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if took <= 0 {
			t.Errorf("%s took %s", method, took)
		}
		calls[call{method, code}]++
	}
	_, _ = c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{})
	_, _ = c.runtimeClient.CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{})
	_, _ = c.runtimeClient.Attach(c.ctx, &runtimeapi.AttachRequest{})
	c.runtime.fail.Store(status.New(codes.NotFound, "no such container"))
	_, _ = c.runtimeClient.ExecSync(c.ctx, &runtimeapi.ExecSyncRequest{})
	want := map[call]int{
		{runtimeapi.RuntimeService_Version_FullMethodName, codes.OK}:           1,
		{runtimeapi.RuntimeService_CreateContainer_FullMethodName, codes.OK}:   1,
		{runtimeapi.RuntimeService_Attach_FullMethodName, codes.Unimplemented}: 1,
		{runtimeapi.RuntimeService_ExecSync_FullMethodName, codes.NotFound}:    1,
	}
	// The client has its answer before the handler has returned.
	await.That(t, "all calls to be reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(calls) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	for c, n := range want {
		if calls[c] != n {
			t.Errorf("%v was told of %d times, want %d: %v", c, calls[c], n, calls)
		}
	}
}
