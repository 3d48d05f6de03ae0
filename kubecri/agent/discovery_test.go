package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
)

func TestTheOldestOfTwoConfigurationsOfANameCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := configuration("cam"), configuration("cam")
		first.CreationTimestamp = metav1.Unix(100, 0)
		second.Namespace, second.UID, second.CreationTimestamp = "attic", "second", metav1.Unix(200, 0)
		api := newAPI(second)
		agent := api.start(t, "node-a", seeing("foo0"))
		wantNamespace := func(want string) {
			t.Helper()
			api.want(t, "node-a-0: foo0")
			if got := api.slices(t)[0].Spec.Devices[0].Configuration.Namespace; got != want {
				t.Errorf("the device is that of namespace %s, want %s", got, want)
			}
		}
		wantNamespace("attic")
		api.configure(t, first)
		wantNamespace(ns)
		agent.wantEvents(t) // the controller says it once, not each node
		if err := api.AkriV0().Configurations(ns).Delete(t.Context(), "cam", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantNamespace("attic")
	})
}

// Of a Configuration and one that is named as its Instance the older has the name.
func TestAConfigurationNamedAsAnInstance(t *testing.T) {
	for name, tc := range map[string]struct {
		named    int64 // when the one that is named as an Instance is created; the other is at 100
		slices   string
		devices  string
		leftOver string // devices, once the older is gone
	}{
		"it is younger": {named: 200, slices: "node-a-0: foo0 foo1", devices: "cam-8120fe cam-a19705",
			leftOver: "cam-8120fe-8120fe cam-8120fe-a19705"},
		"it is older": {named: 50, slices: "node-a-0: foo0 foo0 foo1 foo1", devices: "cam-8120fe-8120fe cam-8120fe-a19705 cam-a19705",
			leftOver: "cam-8120fe cam-a19705"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, named := configuration("cam"), configuration("cam-8120fe")
				base.CreationTimestamp, named.CreationTimestamp = metav1.Unix(100, 0), metav1.Unix(tc.named, 0)
				named.UID = "named"
				api := newAPI(base)
				agent := api.start(t, "node-a", seeing("foo0", "foo1"))
				devices := func() string {
					all, _ := agent.Devices()
					for instance := range all {
						if _, ok := agent.Device(instance); !ok {
							t.Errorf("Device(%s) is none", instance)
						}
					}
					return strings.Join(slices.Sorted(maps.Keys(all)), " ")
				}
				api.want(t, "node-a-0: foo0 foo1")
				api.configure(t, named)
				api.want(t, tc.slices)
				if got := devices(); got != tc.devices {
					t.Errorf("it gives %q, want %q", got, tc.devices)
				}
				agent.wantEvents(t) // the controller says it once, not each node
				instance := "cam-8120fe"
				if tc.named > 100 {
					instance += "-a19705"
				}
				if _, err := agent.WaitDevice(t.Context(), instance); err == nil || !strings.Contains(err.Error(), "Configuration cameras/cam") {
					t.Errorf("WaitDevice(%s) = %v", instance, err)
				}
				older := "cam"
				if tc.named < 100 {
					older = "cam-8120fe"
				}
				if err := api.AkriV0().Configurations(ns).Delete(t.Context(), older, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				api.want(t, "node-a-0: foo0 foo1")
				if got := devices(); got != tc.leftOver {
					t.Errorf("once the older is gone it gives %q, want %q", got, tc.leftOver)
				}
			})
		})
	}
}

// itsNameStays is how the author of a Configuration names another handler.
const itsNameStays = "The handler of a Configuration cannot be changed: to name another, delete the Configuration and apply it again under the same name"

func TestAnUnknownHandlerIsToldOnceAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		agent := api.start(t, "node-a")
		pass(reports.Registering - 3*time.Second)
		agent.wantEvents(t) // it may be about to register again
		api.wantCalls(t)
		pass(time.Second)
		agent.wantEvents(t, `Warning UnknownHandler Node node-a: no discovery handler "echoes" on this node: run it there, and discovery starts. `+itsNameStays)
		api.want(t, "node-a-0: !UnknownHandler")
		agent.Add(discovery.NewSource(seeing("foo0"), discovery.BuiltInEndpoint))
		api.want(t, "node-a-0: foo0")
		agent.wantEvents(t)
	})
}

// idle is a handler of another name.
type idle string

func (i idle) Name() string { return string(i) }

func (i idle) Discover(ctx context.Context, _ discovery.Request, _ func(discovery.Result)) error {
	<-ctx.Done()
	return nil
}

// A misspelt handler is told with those that there are.
func TestAnUnknownHandlerIsToldWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		agent := api.start(t, "node-a", idle("udev"), idle("echos"))
		pass(reports.Registering)
		agent.wantEvents(t, `Warning UnknownHandler Node node-a: no discovery handler "echoes" on this node, which has echos, udev: run it there, and discovery starts; did you mean "echos"? `+itsNameStays)
	})
}

// A node that has to have the handler is told why it has to.
func TestAnUnknownHandlerOfASelectedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.HandlerNodeSelector = map[string]string{"net": "shop"}
		api := newAPI(c)
		n := node("node-a")
		n.Labels = c.Spec.HandlerNodeSelector
		if _, err := api.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		agent := api.start(t, "node-a")
		pass(reports.Registering)
		agent.wantEvents(t, `Warning UnknownHandler Node node-a: no discovery handler "echoes" on this node of spec.handlerNodeSelector: run it there, and discovery starts. `+itsNameStays)
	})
}

// The last report of a handler that fails stands for its time, and its failures are
// written once, though each is at another port.
func TestAFailingHandlerIsRestartedAndItsLastReportStands(t *testing.T) {
	for want, breakIt := range map[string]func(*echoes){
		`Warning DiscoveryFailed Node node-a: discovery handler "echoes": lost port 4000`:            func(h *echoes) { h.fail = func(run int) error { return fmt.Errorf("lost port %d", 4000+run-1) } },
		`Warning DiscoveryFailed Node node-a: discovery handler "echoes": panic: index out of range`: func(h *echoes) { h.panics = true },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, handler := newAPI(configuration("cam")), seeing("foo0")
				agent := api.start(t, "node-a", handler)
				api.want(t, "node-a-0: foo0")
				handler.change(func() { breakIt(handler) })
				agent.wantEvents(t, want)
				api.want(t, "node-a-0: foo0 !DiscoveryFailed")
				pass(20 * time.Second)
				api.wantNow(t, "node-a-0: foo0 !DiscoveryFailed")
				pass(10 * time.Second)
				api.wantNow(t, "node-a-0: foo0? !DiscoveryFailed") // no new pods
				pass(4 * time.Minute)
				api.wantNow(t, "node-a-0: foo0? !DiscoveryFailed")
				if _, ok := agent.Device("cam-8120fe"); !ok {
					t.Error("the device went with its handler")
				}
				agent.wantNotified(t)
				pass(time.Minute)
				api.wantNow(t, "node-a-0: !DiscoveryFailed")
				agent.wantEvents(t, "Warning DevicesLost Node node-a no longer reports 1 devices: discovery handler echoes@built-in has not worked since they were reported last")
				agent.wantNotified(t, "cam-8120fe DeviceGone Node node-a no longer sees the device of Instance cam-8120fe")
				if _, ok := agent.Device("cam-8120fe"); ok || !agent.Gone("cam-8120fe") {
					t.Error("the device stays for ever")
				}
				api.called()
				runs := handler.ran()
				pass(time.Hour)
				api.wantCalls(t)
				if n := handler.ran() - runs; n < 50 || n > 80 {
					t.Errorf("ran %d times in an hour", n)
				}
				handler.change(func() { handler.fail, handler.panics = nil, false })
				handler.see("foo0", "foo1")
				pass(3 * time.Minute)
				api.wantNow(t, "node-a-0: foo0 foo1")
				agent.wantEvents(t)
			})
		})
	}
}

func TestDevicesThatAreLeftOutAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, second = "camera-11047", "camera-9752" // both have the hash 6a1ec6
		api, handler := newAPI(configuration("cam")), seeing(second)
		agent := api.start(t, "node-a", handler)
		api.want(t, "node-a-0: "+second)
		handler.see(first, second, "")
		api.want(t, "node-a-0: "+second+" !DevicesRejected")
		why := `2 devices: device "": has no id; device "` + first + `": its hash ` + instanceOf("cam", first)[4:] + ` is also that of device "` + second +
			`", which comes first; a Configuration with spec.instanceNameDigits: 12 tells them apart`
		agent.wantEvents(t, "Warning DevicesRejected Node node-a leaves out "+why)
		if got := api.slices(t)[0].Spec.Problems[0].Message; got != "left out: "+why {
			t.Errorf("problem %q", got)
		}
		handler.see(first)
		api.want(t, "node-a-0: "+first)
	})
}

func TestWaitDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.BrokerProperties = map[string]string{"URL": "rtsp"}
		handler := silent()
		agent := newAPI(c).start(t, "node-a", handler)
		soon := func(instance string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := agent.WaitDevice(ctx, instance)
			return err
		}
		if err := soon("cam-8120fe"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for the first report") {
			t.Errorf("WaitDevice() before any report = %v, want the deadline, and what was waited for", err)
		}
		if agent.Gone("cam-8120fe") || !agent.Gone("garage-8120fe") {
			t.Error("a device is gone before the first report, or that of no Configuration is not")
		}
		_, changed := agent.Devices()
		time.AfterFunc(time.Minute, func() { handler.see("foo0") })
		device, err := agent.WaitDevice(t.Context(), "cam-8120fe")
		if err != nil {
			t.Fatal(err)
		}
		<-changed
		all, _ := agent.Devices()
		want := map[string]string{"ID": "foo0", "URL": "rtsp"}
		if !cmp.Equal(device.Properties, want) || !cmp.Equal(all["cam-8120fe"].Properties, want) || len(all) != 1 {
			t.Errorf("properties %v, and %v of all devices, want %v", device.Properties, all, want)
		}
		for instance, want := range map[string]string{
			"cam-a19705":    `discovery handler "echoes" does not see it on this node`,
			"garage-8120fe": `there is no Configuration "garage": apply the Configuration again, or delete the pod`,
			"":              `there is no Configuration ""`,
		} {
			if err := soon(instance); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("WaitDevice(%q) = %v, want %s", instance, err, want)
			}
		}
		handler.see()
		synctest.Wait()
		if _, ok := agent.Device("cam-8120fe"); ok || !agent.Gone("cam-8120fe") {
			t.Error("what is gone is still found")
		}
	})
}
