package ui

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui/browser"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func noEvents(context.Context, string, string) ([]corev1.Event, error) { return nil, nil }

// slotAt finds a slot's button.
func slotAt(instance, index string) string {
	return `.device[data-name="` + instance + `"] [data-slot="` + index + `"]`
}

// A user sees devices by node, clicks on slots and pods, and sees what changes without
// doing anything.
func TestPage(t *testing.T) {
	now := time.Now()
	c := small(t, now)
	b := browser.Open(t, servePage(t, c), 1440, 900)
	gate, gpu := instanceOf("cameras", "gate", ""), instanceOf("gpus", "GPU-0", "node-a")

	b.Await("#live", "Live")
	b.Await("#grid h3", "Shared by node-a and node-b", "node-a", "node-b")
	b.Await("#stat-slots", "4 of 14")
	b.Await("#nodes", "node-a", "node-b")
	b.Await(slotAt(gate, "0"), "held by default/viewer-1, container main")
	b.Await(slotAt(gate, "2"), "free")
	b.Await(slotAt(gpu, "0"), "assigned by default/starts")
	b.Picture("light")
	if address := browser.Eval[string](b, "location.href"); address != browser.Eval[string](b, "location.origin + '/'") {
		t.Errorf("the address bar has %q: the key should not stay there", address)
	}

	// A click on a slot shows pod, container and since.
	b.Click(slotAt(gate, "1"))
	b.Await("#drawer", gate+"-1", "team-b/viewer-2", "main", "node-b", "12m", "any device of cameras")
	b.Await("#drawer .spans", "team-b/viewer-2, held")
	b.Picture("slot")

	// On a waiting pod, why it waits.
	b.Press(kb.Escape)
	b.AwaitTrue("document.getElementById('drawer').hidden")
	b.Click(`#waiting [data-open="pod/default/waits"]`)
	b.Await("#drawer", "default/waits", "3 × akri.sh/cameras", "Why it waits")
	b.Picture("waits")

	// Live: the node claims the slot that was assigned, the open details follow.
	b.Press(kb.Escape)
	b.Click(slotAt(gpu, "0"))
	b.Await("#drawer .pill", "Assigned")
	c.change(func(o *view.Objects) {
		i := len(o.Pods) - 2
		o.Pods = added(o.Pods)
		o.Pods[i] = running(o.Pods[i], time.Now())
	})
	b.Await(slotAt(gpu, "0"), "missing in default/starts") // kubecri has not seen its container
	b.Await("#drawer .pill", "Missing")
	b.Await("#drawer", "runs without the device")
	b.Await("#activity", "default/starts runs without GPU-0 slot 0")
	b.Await("#problems", "pod/default/starts", "has not claimed its slot")
	c.change(func(o *view.Objects) {
		i := len(o.Pods) - 2
		o.Claims = added(o.Claims, claimOf(gpu+"-0", &o.Pods[i], v1alpha1.ConfigurationLevel, time.Now()))
	})
	b.Await(slotAt(gpu, "0"), "held by default/starts")
	b.Await("#drawer .pill", "Held")
	b.Await("#activity", "default/starts holds GPU-0 slot 0")
	b.AwaitText("document.getElementById('announce').textContent", "1 slot held")

	// A pod ends, its slots are free.
	c.change(func(o *view.Objects) {
		o.Pods = without(o.Pods, func(p *corev1.Pod) bool { return p.Name == "viewer-2" })
		o.Claims = without(o.Claims, func(k *v1alpha1.SlotClaim) bool { return k.Spec.Pod.Name == "viewer-2" })
	})
	b.Await(slotAt(gate, "1"), "free")
	b.Await("#activity", "team-b/viewer-2 released gate slot 1")
	b.Await("#stat-slots", "3 of 14")

	// Devices come and go.
	c.change(func(o *view.Objects) {
		o.Slices = append([]v1alpha1.DeviceSlice(nil), o.Slices...)
		device(o, "gpus", "GPU-1", 4, false, "node-b")
	})
	b.Await("#grid", "GPU-1")
	b.Await("#activity", "Device GPU-1 was found")

	// What is shown is out of date.
	c.fail(errors.New("connection refused"))
	b.Await("#notices", "Out of date: connection refused")
	c.fail(nil)
	b.AwaitTrue("document.getElementById('notices').childElementCount === 0")

	// Back closes, forward opens again.
	b.Press(kb.Escape)
	b.AwaitTrue("document.getElementById('drawer').hidden")
	b.Do(chromedp.NavigateBack())
	b.Await("#drawer", gpu+"-0")
}

// The page can be used without a mouse.
func TestKeyboard(t *testing.T) {
	b := browser.Open(t, servePage(t, small(t, time.Now())), 1440, 900)
	b.Await("#live", "Live")
	gate, yard := instanceOf("cameras", "gate", ""), instanceOf("cameras", "yard", "")
	at := func(instance, slot string) {
		t.Helper()
		b.AwaitText("(document.activeElement.closest('.device')?.dataset.name || '') + ' ' + document.activeElement.dataset.slot", instance+" "+slot)
	}
	b.Focus("#grid .name")
	b.Press(kb.ArrowRight)
	at(gate, "0")
	b.Press(kb.ArrowRight, kb.ArrowRight, kb.ArrowRight)
	at(yard, "-1")
	b.Press(kb.ArrowLeft)
	at(gate, "2")
	b.Press(kb.End)
	at(instanceOf("gpus", "GPU-0", "node-b"), "-1")
	b.Press(kb.ArrowRight, kb.ArrowUp)
	at(instanceOf("gpus", "GPU-0", "node-a"), "0")
	b.Press(kb.Home)
	at(gate, "-1")
	b.Press(kb.ArrowRight, kb.Enter)
	b.Await("#drawer h2", gate+"-0")
	b.AwaitTrue("document.activeElement.id === 'drawer-title'")
	b.Press(kb.Escape)
	at(gate, "0")
	if n := browser.Eval[int](b, "document.querySelectorAll('#grid [tabindex=\"0\"]').length"); n != 1 {
		t.Errorf("Tab stops %d times in the grid, want once", n)
	}
	b.Press("/")
	b.AwaitTrue("document.activeElement.id === 'search'")
	b.Search("") // a key that DevTools sends is also typed
	b.Press("y", "a", "r", "d")
	b.Await("#devices-count", "1 of 4")
	b.Press(kb.Escape)
	b.AwaitText("document.getElementById('devices-count').textContent", "4")
	b.Focus(".plot")
	b.Press(kb.ArrowLeft)
	b.AwaitText("document.querySelector('.plot').getAttribute('aria-valuetext')", "slots held")
}

// What is looked for is found, by whatever it is known by.
func TestFilters(t *testing.T) {
	b := browser.Open(t, servePage(t, small(t, time.Now())), 1440, 900)
	b.Await("#live", "Live")
	for text, want := range map[string]string{"yard": "1 of 4", "viewer-2": "1 of 4", "gpus": "2 of 4", "node-b gpus": "1 of 4", "akri.sh/cameras": "2 of 4", "nowhere": "0 of 4"} {
		b.Search(text)
		b.Await("#devices-count", want)
	}
	b.Await("#nothing", "No device is like that.")
	b.Search("")
	b.Click(`#nodes [data-node="node-b"]`)
	b.Await("#devices-count", "3 of 4")
	b.AwaitTrue(`document.querySelectorAll('.slot.elsewhere').length === 2`) // those that viewer-1 has on node-a
	b.Click(`#nodes [data-node="node-b"]`)
	b.Click(`#filters [data-filter="assigned"]`)
	b.Await("#devices-count", "1 of 4")
	b.Click(`#filters [data-filter="all"]`)
	b.Click(`input[value="configuration"] + span`)
	b.Await("#grid h3", "default/cameras", "default/gpus")
}

// Names of devices are cut in the middle: paths of sysfs tell most at their ends. A device that says
// its model and serial number is known by them.
func TestNamesOfDevices(t *testing.T) {
	const path = "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0"
	const adapter = "0403:6001:A50285BI"
	c := small(t, time.Now())
	c.change(func(o *view.Objects) {
		o.Slices = append([]v1alpha1.DeviceSlice(nil), o.Slices...)
		device(o, "cameras", path, 3, false, "node-a")
		device(o, "cameras", adapter, 3, false, "node-a")
		o.Instances[len(o.Instances)-1].Spec.BrokerProperties = map[string]string{"USB_MODEL": "FT232R USB UART", "USB_SERIAL": "A50285BI"}
	})
	b := browser.Open(t, servePage(t, c), 1440, 900)
	b.Await("#devices-count", "6")
	card := func(id string) string {
		return `document.querySelector('.device[data-name="` + instanceOf("cameras", id, "node-a") + `"] .name')`
	}
	b.AwaitText(card(path)+".title", path)
	b.AwaitText(card(path)+".textContent", path)
	start, end := card(path)+".querySelector('.middle').firstChild", card(path)+".querySelector('.middle').lastChild"
	b.AwaitText(end+".textContent", "/video0")
	b.AwaitTrue(start + ".scrollWidth > " + start + ".clientWidth && " + start + ".clientWidth > 20")
	b.AwaitTrue(end + ".getBoundingClientRect().right <= " + card(path) + ".getBoundingClientRect().right")
	b.Picture("page")

	b.AwaitText(card(adapter)+".textContent", "FT232R USB UART A50285BI")
	b.AwaitText(card(adapter)+".title", "FT232R USB UART A50285BI", adapter)
	b.Click(`.device[data-name="` + instanceOf("cameras", adapter, "node-a") + `"] .name`)
	b.Await("#drawer h2", "FT232R USB UART A50285BI")
	b.Await("#drawer", adapter)
	b.Press(kb.Escape)
	for _, text := range []string{adapter, "ft232r"} {
		b.Search(text)
		b.Await("#devices-count", "1 of 6")
	}
	c.change(func(o *view.Objects) {
		o.Instances = without(o.Instances, func(in *akriv0.Instance) bool {
			return in.Name == instanceOf("cameras", adapter, "node-a") || in.Name == instanceOf("cameras", path, "node-a")
		})
	})
	b.AwaitText("document.getElementById('activity').textContent", "Device FT232R USB UART A50285BI is gone", "Device "+path+" is gone")
	b.AwaitTrue("document.getElementById('activity').scrollWidth <= document.getElementById('activity').clientWidth")
	b.Picture("gone")
}

// On a narrow screen nothing is cut off or beside the screen; in the dark it is dark.
func TestNarrowAndDark(t *testing.T) {
	b := browser.Open(t, servePage(t, small(t, time.Now())), 390, 844)
	b.Await("#live", "Live")
	for _, scheme := range []string{"light", "dark"} {
		browser.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		b.Picture(scheme)
		if over := browser.Eval[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
			t.Errorf("the page is %d pixels wider than the screen", over)
		}
		bright := browser.Eval[bool](b, "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]) > 128")
		if bright != (scheme == "light") {
			t.Errorf("colour scheme %s: the page is bright: %v", scheme, bright)
		}
	}
	b.Click("#theme") // light, whatever the system says
	b.AwaitTrue("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]) > 128")
	b.Click(slotAt(instanceOf("cameras", "gate", ""), "0"))
	b.Await("#drawer", "default/viewer-1")
	b.Picture("slot")
}

// A user who may see one namespace sees what is missing, and nobody else's pods.
func TestOneNamespace(t *testing.T) {
	c := small(t, time.Now())
	gate := instanceOf("cameras", "gate", "")
	c.change(func(o *view.Objects) {
		o.Claims, o.Slices, o.Nodes = nil, nil, nil
		o.Pods, o.PodsOf = without(o.Pods, func(p *corev1.Pod) bool { return p.Namespace != "default" }), "default"
		for i := range o.Instances {
			if o.Instances[i].Name == gate {
				o.Instances[i].Spec.DeviceUsage = map[string]string{gate + "-0": "C:default/viewer-1:node-a", gate + "-1": "C:team-b/viewer-2:node-b"}
			}
		}
		c.missing = []string{"deviceslices.kubeslot.io", "slotclaims.kubeslot.io", "pods of other namespaces", "nodes"}
	})
	b := browser.Open(t, servePage(t, c), 1440, 900)
	b.Await("#notices", "You may not list deviceslices.kubeslot.io, slotclaims.kubeslot.io, pods of other namespaces, nodes")
	b.Await(slotAt(gate, "1"), "held by node node-b")
	if text := browser.Eval[string](b, "document.documentElement.outerHTML"); strings.Contains(text, "team-b") {
		t.Error("the page has a pod of a namespace that the user may not see")
	}
	b.Picture("page")

	// Of what is wrong with a device the page opens the device.
	c.change(func(o *view.Objects) {
		o.Instances = added(o.Instances)
		for i := range o.Instances {
			if o.Instances[i].Name == gate {
				o.Instances[i].Status.Problems = []string{"its lens is broken"}
			}
		}
	})
	b.Await("#problems", "instance/default/"+gate, "its lens is broken")
	b.Click("#problems .entry")
	b.Await("#drawer h2", gate)
	b.Await("#drawer", "its lens is broken")
	// An address that nobody can have meant shows nothing, and no error.
	browser.Eval[bool](b, "(location.hash = 'pod/%E0/x', true)")
	b.AwaitTrue("document.getElementById('drawer').hidden")
}

// What people write into objects stays text.
func TestTextStaysText(t *testing.T) {
	const script = `<img src=x onerror="document.title='owned'">`
	c := small(t, time.Now())
	c.change(func(o *view.Objects) {
		o.Slices = append([]v1alpha1.DeviceSlice(nil), o.Slices...)
		device(o, "cameras", script, 3, true, "node-a", "node-b")
		o.Configurations[0].Status.Problems = append(o.Configurations[0].Status.Problems, problem(script))
		p := podOf("default", "evil", "cameras", 9, time.Now())
		p.Status.Conditions[0].Message = script
		o.Pods = added(o.Pods, p)
	})
	b := browser.Open(t, servePage(t, c), 1440, 900)
	b.AwaitText("document.getElementById('grid').textContent", script)
	b.Await("#problems", script)
	b.Click(`#waiting [data-open="pod/default/evil"]`)
	b.Await("#drawer", script)
	b.Click(slotAt(instanceOf("cameras", script, ""), "-1"))
	b.Await("#drawer h2", script)
	if title := browser.Eval[string](b, "document.title"); title != "Kubeslot" || browser.Eval[int](b, "document.querySelectorAll('img[src=x]').length") != 0 {
		t.Errorf("a text became markup: the title is %q", title)
	}
}

func problem(message string) akriv0.ConfigurationProblem {
	return akriv0.ConfigurationProblem{Node: "node-a", Reason: "DiscoveryFailed", Message: message}
}
