package agent

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/kubecri/discoveryworker"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// TestMain is also the discovery worker.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != discoveryworker.Command {
		os.Exit(m.Run())
	}
	klog.Fatal(discoveryworker.Serve(context.Background(), "", remote.NewRunner(map[string]pb.DiscoveryHandlerServer{
		"echoes": standalone.NewService(parser{}, klog.Background())})))
}

// parser sees foo0, with the process it runs in, and has a bug that SIGUSR1 shows.
type parser struct{}

func (parser) Name() string { return "echoes" }

func (parser) Shared() bool { return true }

func (parser) Discover(ctx context.Context, _ discovery.Request, report func(discovery.Result)) error {
	bug := make(chan os.Signal, 1)
	signal.Notify(bug, syscall.SIGUSR1)
	report(discovery.Result{Shared: true, Devices: []discovery.Device{
		{ID: "foo0", Properties: map[string]string{"PID": strconv.Itoa(os.Getpid())}}}})
	select {
	case <-bug:
		go panic("slice bounds out of range [:7]")
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

// A fault in a parser ends the worker alone. The node's devices keep their place, and discovery goes
// on in the next worker.
func TestAWorkerThatPanicsIsReported(t *testing.T) {
	api := newAPI(configuration("cam"))
	agent := api.start(t, "node-a")
	worker := discoveryworker.NewProcess(t.Context(), clock.RealClock{}, filepath.Join(t.TempDir(), "worker.sock"), nil)
	server, err := remote.NewServer(remote.Config{Registry: agent.Registry, Directory: t.TempDir(), Worker: worker})
	if err != nil {
		t.Fatal(err)
	}
	agent.Add(discovery.NewSource(server.InWorker(parser{}), discovery.BuiltInEndpoint))
	awaitDevices(t, api, "foo0")
	first := process(t, api)

	stop := holds(t, api, "foo0")
	if err := syscall.Kill(first, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the report of another worker", func() bool { return process(t, api) != first })
	if !slices.ContainsFunc(api.Actions(), reportsThePanic) {
		t.Error("no slice said why the first one ended")
	}
	stop()
}

// process returns the process that reported foo0.
func process(t *testing.T, api *api) (pid int) {
	t.Helper()
	for _, s := range api.slices(t) {
		for _, d := range s.Spec.Devices {
			pid, _ = strconv.Atoi(string(d.Properties["PID"]))
		}
	}
	return pid
}

// reportsThePanic says whether the write is of a slice with the problem, which may stand for a second.
func reportsThePanic(a clienttesting.Action) bool {
	update, ok := a.(clienttesting.UpdateAction)
	if !ok {
		return false
	}
	slice, ok := update.GetObject().(*v1alpha1.DeviceSlice)
	return ok && slices.ContainsFunc(slice.Spec.Problems, func(p v1alpha1.Problem) bool {
		return strings.Contains(p.Message, "panic: slice bounds out of range [:7]")
	})
}
