package discoveryworker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// TestMain is also the worker, and with kubecriArgument a kubecri that waits to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case Command:
		runtime.LockOSThread() // the worker is on another thread than that which kubecri started
		ended := make(chan error)
		go func() { ended <- Serve(context.Background(), "", testRunner()) }()
		klog.Fatal(<-ended)
	case kubecriArgument:
		w := NewProcess(context.Background(), clock.RealClock{}, os.Args[2], nil)
		handler := handlerOf(w, os.TempDir())
		klog.Fatal(handler.Discover(context.Background(), discovery.Request{Details: "pid"}, func(r discovery.Result) {
			fmt.Println(r.Devices[0].ID)
		}))
	default:
		os.Exit(m.Run())
	}
}

const kubecriArgument = "test-kubecri"

func testRunner() *remote.Runner {
	return remote.NewRunner(map[string]pb.DiscoveryHandlerServer{
		testHandler{}.Name(): standalone.NewService(testHandler{}, klog.Background())})
}

// testHandler does in the worker what the details say.
type testHandler struct{}

func (testHandler) Name() string { return "test" }

func (testHandler) Shared() bool { return true }

func (testHandler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	kind, rest, _ := strings.Cut(request.Details, " ")
	switch kind {
	case "pid":
		report(discovery.Result{Shared: true, Devices: []discovery.Device{{ID: strconv.Itoa(os.Getpid())}}})
	case "panic":
		go panic(rest)
	case "large":
		report(discovery.Result{Shared: true, Devices: largeList()})
	case "invalid":
		return discovery.Invalidf("test: %s", rest)
	case "fail":
		return fmt.Errorf("test: %s", rest)
	}
	<-ctx.Done()
	return ctx.Err()
}

// largeList is a list that takes almost the 16 MiB that are allowed.
func largeList() []discovery.Device {
	device := discovery.Device{Properties: map[string]string{"K": strings.Repeat("x", 15<<10)}}
	devices := slices.Repeat([]discovery.Device{device}, 1080)
	for i := range devices {
		devices[i].ID = strconv.Itoa(i)
	}
	return devices
}

// startWorker runs a worker in a process of its own, until the test ends.
func startWorker(t *testing.T) (*Process, *testingclock.FakeClock) {
	t.Helper()
	clock := testingclock.NewFakeClock(time.Now())
	return NewProcess(t.Context(), clock, socketOf(t), nil), clock
}

func socketOf(t *testing.T) string { return filepath.Join(t.TempDir(), "worker.sock") }

// runs runs f until the test ends, or stop is called, which waits.
func runs(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// handlerOf is the test's handler as the agent has it.
func handlerOf(w remote.Worker, directory string) discovery.Handler {
	server, err := remote.NewServer(remote.Config{Registry: discovery.NewRegistry(), Directory: directory, Worker: w})
	if err != nil {
		panic(err)
	}
	return server.InWorker(testHandler{})
}

// discovering is one Discover.
type discovering struct {
	reports chan discovery.Result
	done    chan error
}

func discover(t *testing.T, handler discovery.Handler, details string) *discovering {
	d := &discovering{make(chan discovery.Result, 10), make(chan error, 1)}
	runs(t, func(ctx context.Context) {
		d.done <- handler.Discover(ctx, discovery.Request{Details: details},
			func(r discovery.Result) { d.reports <- r })
	})
	return d
}

// pid runs a Discover and returns the process in which it runs.
func pid(t *testing.T, handler discovery.Handler) (int, *discovering) {
	t.Helper()
	d := discover(t, handler, "pid")
	select {
	case r := <-d.reports:
		n, err := strconv.Atoi(r.Devices[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return n, d
	case err := <-d.done:
		t.Fatalf("Discover: %v", err)
	case <-time.After(await.Patience):
		t.Fatal("no report")
	}
	panic("not reached")
}

// exists also says no of a process that has ended, and that nobody has waited for.
func exists(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}
