package deviceplugins

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/plugins/server"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// serve serves the example plugin in the folder until stop is called.
func serve(t *testing.T, folder string) (stop func()) {
	return serveWith(t, folder, widget.Scheduler{})
}

func serveWith(t *testing.T, folder string, s devicescheduler.DeviceScheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Scheduler(s, string(widget.Resource)).Serve(ctx, folder) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// socketFolder is a folder whose name is short enough for sockets.
func socketFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "sockets")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// The whole of it over gRPC: a scheduler that began without any plugin takes one that comes; while it
// is away, pods that request its resources wait, and no others.
func TestSocketsInTheScheduler(t *testing.T) {
	o := &Options{Folder: t.TempDir(), Options: remote.Options{
		Sockets: filepath.Join(socketFolder(t), "late"), Timeout: 20 * time.Second}}
	c := newCluster(t)
	c.node("a", "1x2")
	c.node("b", "1x2")
	c.scheduleWith(o)
	c.create(written(t, "early", "", "example.com/widget", 1))
	c.awaitRefused("early", "no device scheduler plugin is loaded")
	if err := os.Mkdir(o.Sockets, 0o755); err != nil {
		t.Fatal(err)
	}

	stop := serve(t, o.Sockets)
	c.awaitBound("early")
	c.create(written(t, "one", "", "example.com/widget", 1), written(t, "two", "", "example.com/widget", 1))
	c.awaitBound("one", "two")
	c.create(written(t, "large", "", "example.com/widget", 2), written(t, "unknown", "", "example.com/gadget", 1))
	c.awaitRefused("large", "Insufficient")
	c.awaitRefused("unknown", `no device scheduler plugin answers for 1 of "example.com/gadget"`)
	if err := o.Away(); err != nil {
		t.Errorf("Away() = %v", err)
	}

	stop()
	c.awaitEvent("Warning DevicePluginAway pods that request its resources wait: plugin \"widget\" is away since")
	c.create(written(t, "later", "", "example.com/widget", 1), parsePod(t, "plain", "", "", "main"))
	c.awaitRefused("later", `2 plugin "widget" is away since`,
		"start it, or run without it by --plugin-policy=widget=ignore")
	c.awaitBound("plain")
	if err := o.Away(); err == nil || !strings.Contains(err.Error(), `plugin "widget" is away`) {
		t.Errorf("Away() = %v", err)
	}
	if n, err := testutil.GetGaugeMetricValue(up.WithLabelValues("widget")); n != 0 || err != nil {
		t.Errorf("metric: %v plugins are up, %v", n, err)
	}
	stop = serve(t, o.Sockets)
	c.awaitBound("later")
	c.awaitEvent(`Normal DevicePluginRecovered plugin "widget" is asked again`)
	c.haveTheirOwn(1, "early", "one", "two", "later")
	if n, err := testutil.GetGaugeMetricValue(up.WithLabelValues("widget")); n != 1 || err != nil {
		t.Errorf("metric: %v plugins are up, %v", n, err)
	}
	stop()
}

// stuck is the example plugin, which does not answer about pods until it is closed.
type stuck struct {
	widget.Scheduler
	until chan struct{}
}

func (s stuck) PodFitsDevice(n *types.NodeInfo, p *types.PodInfo, fill bool) (
	bool, []devicescheduler.PredicateFailureReason, float64) {
	<-s.until
	return s.Scheduler.PodFitsDevice(n, p, fill)
}

// The metric says that a plugin does not answer for as long as it does not.
func TestStuckPluginIsNotUp(t *testing.T) {
	o := &Options{Folder: t.TempDir(), Options: remote.Options{
		Sockets: socketFolder(t), Timeout: 50 * time.Millisecond}}
	c := newCluster(t)
	c.node("a", "1x2")
	s := stuck{until: make(chan struct{})}
	serveWith(t, o.Sockets, s)
	t.Cleanup(func() { close(s.until) })
	timeouts := func() (n float64) {
		n, err := testutil.GetCounterMetricValue(faults.WithLabelValues("widget", "PodFitsDevice",
			string(host.TimedOut)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := timeouts()
	c.scheduleWith(o)
	c.create(written(t, "pod", "", "example.com/widget", 1))
	await.That(t, "the plugin to be tried again", func() bool { return timeouts() >= before+5 })
	if n, err := testutil.GetGaugeMetricValue(up.WithLabelValues("widget")); n != 0 || err != nil {
		t.Errorf("metric: %v plugins are up, %v", n, err)
	}
	for len(c.events.Events) > 0 {
		if e := <-c.events.Events; strings.Contains(e, "DevicePluginRecovered") {
			t.Error(e)
		}
	}
}

// A plugin that is named and was never there keeps all pods back that ask plugins for something, and
// one that is ignored does not.
func TestNeverThere(t *testing.T) {
	for policy, reason := range map[string]string{
		remote.Required: `plugin "other" is away since`,
		remote.Ignore:   `no device scheduler plugin answers for 1 of "example.com/gadget"`,
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := newCluster(t)
			c.node("a", "1x2")
			o := &Options{Folder: t.TempDir(), Options: remote.Options{Sockets: t.TempDir(), Timeout: time.Second,
				Policies: map[string]string{"other": policy}}}
			c.scheduleWith(o)
			c.create(written(t, "pod", "", "example.com/gadget", 1), parsePod(t, "plain", "", "", "main"))
			c.awaitRefused("pod", reason)
			c.awaitBound("plain")
			if away := o.Away(); (away != nil) != (policy == remote.Required) {
				t.Errorf("Away() = %v", away)
			}
		})
	}
}

func (c *cluster) awaitEvent(begin string) {
	c.Helper()
	for !strings.HasPrefix(await.Next(c.T, "the event "+begin, c.events.Events), begin) {
	}
}
