package dra

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// run runs the driver, and what keeps CDI specs, until stop.
func (r *rig) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	running.Go(func() { r.CDI.Run(ctx, r.devices) })
	return func() { cancel(); running.Wait() }
}

// shortDir is a directory whose name is short, for sockets' paths.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// There is no driver before a Configuration is DRA's. From then on the kubelet finds it, also after kubecri
// was started again, and when no Configuration is DRA's any more and no ResourceClaim holds a slot: the kubelet may
// not have heard yet that it is unprepared.
func TestServe(t *testing.T) {
	c := configuration(2)
	c.Spec.Allocator, c.Status.Allocator = akriv0.AllocatorSlots, nil
	a := newAPI(c, claim("u1", "one "+camera+" 1"))
	r := start(t, a, here, shortDir(t))
	stop := r.run(t)
	registry := filepath.Join(r.KubeletDirectory, "plugins_registry", "slots.kubeslot.io-reg.sock")
	unrelated := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mic"}}
	if _, err := a.AkriV0().Configurations("default").Create(t.Context(), unrelated,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "another Configuration to be known", func() bool { return r.configuration("mic-8120fe") != nil })
	if _, err := os.Stat(r.KubeletDirectory); err == nil {
		t.Error("there are sockets, and no Configuration is DRA's")
	}
	if _, err := a.AkriV0().Configurations("default").Update(t.Context(), configuration(2),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	info := func() *registerapi.PluginInfo {
		var info *registerapi.PluginInfo
		var err error
		await.That(t, "the driver to register", func() bool {
			info, err = registerapi.NewRegistrationClient(dial(t, registry)).GetInfo(t.Context(),
				&registerapi.InfoRequest{})
			return err == nil
		})
		return info
	}
	first := info()
	if first.Name != "slots.kubeslot.io" || first.Type != registerapi.DRAPlugin ||
		first.Endpoint != filepath.Join(r.KubeletDirectory, "plugins/slots.kubeslot.io/dra.sock") {
		t.Errorf("registers as %v", first)
	}
	if err := os.RemoveAll(r.KubeletDirectory); err != nil { // as who sets the node up anew
		t.Fatal(err)
	}
	if now := info(); now.Endpoint != first.Endpoint {
		t.Errorf("registers as %v once its sockets were removed", now)
	}
	kubelet := dial(t, first.Endpoint)
	request := &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "ns", Name: "claim-u1",
		Uid: "u1"}}}
	answer, err := drapb.NewDRAPluginClient(kubelet).NodePrepareResources(t.Context(), request)
	if err != nil || len(answer.Claims["u1"].GetDevices()) != 1 || answer.Claims["u1"].Error != "" {
		t.Fatalf("%v, %v", answer, err)
	}
	stop()
	r.kill()
	if _, err := os.Lstat(registry); err != nil {
		t.Errorf("the socket went with the process, for which the kubelet forgets the driver: %v", err)
	}
	again := start(t, a, here, r.dir)
	stop = again.run(t)
	if now := info(); now.Endpoint != first.Endpoint {
		t.Errorf("registers as %v", now)
	}
	got, err := drapb.NewDRAPluginClient(kubelet).NodeUnprepareResources(t.Context(),
		&drapb.NodeUnprepareResourcesRequest{Claims: request.Claims}, grpc.WaitForReady(true))
	if err != nil || got.Claims["u1"].Error != "" || len(again.held(t)) != 0 {
		t.Errorf("%v, %v; slots %v", got, err, a.claimed(t))
	}
	stop()
	if !start(t, newAPI(c), here, r.dir).needed() {
		t.Error("no driver is needed, and the kubelet may ask again")
	}
}

// ResourceClaims that hold slots here are unprepared by a driver, whatever the Configurations are by then.
func TestServeWhatIsHeld(t *testing.T) {
	a := newAPI(configuration(2))
	r := start(t, a, here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	if err := a.AkriV0().Configurations("default").Delete(t.Context(), "cam", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.kill()
	if !start(t, a, here, r.dir).needed() {
		t.Error("no driver is needed, and a ResourceClaim holds a slot")
	}
	if start(t, a, there, t.TempDir()).needed() {
		t.Error("a driver is needed where nothing is held")
	}
}

// The kubelet is sent something also while no claim holds a slot: kubeletplugin takes silence for a fault.
func TestWatchHealthOfNothing(t *testing.T) {
	r := start(t, newAPI(configuration(2)), here, t.TempDir())
	reports := make(chan kubeletplugin.DeviceHealthReport)
	go func() { _ = r.WatchHealthStatus(t.Context(), reports) }()
	if got := await.Next(t, "a report", reports); len(got.Devices) > 0 {
		t.Errorf("%+v, and no claim holds a slot", got)
	}
}

// The kubelet is sent the health of the devices of which claims hold slots here, and when it changes.
func TestWatchHealth(t *testing.T) {
	r := start(t, newAPI(configuration(2)), here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	r.Clock = testclock.NewFakeClock(time.Now()) // or the first is sent again after a while
	reports := make(chan kubeletplugin.DeviceHealthReport)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.WatchHealthStatus(ctx, reports) }()
	for _, want := range []kubeletplugin.HealthStatus{kubeletplugin.HealthStatusHealthy,
		kubeletplugin.HealthStatusUnhealthy} {
		got := <-reports
		if len(got.Devices) != 1 || got.Devices[0].DeviceName != camera || got.Devices[0].PoolName != "pool-"+camera ||
			got.Devices[0].Health != want {
			t.Errorf("%+v, want %s", got, want)
		}
		r.devices.set(nil)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
