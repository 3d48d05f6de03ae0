package ui

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui/browser"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// fiveThousand opens the page of a cluster of 5,000 devices with ten slots each, of which
// 40,000 are held, and returns when it shows them all.
func fiveThousand(t testing.TB) (*cluster, *browser.Tab) {
	t.Helper()
	c := large(t, 5000, 10, time.Now())
	b := browser.Open(t, servePage(t, c), 1440, 900)
	showsAll(b)
	return c, b
}

func showsAll(b *browser.Tab) {
	b.Helper()
	b.Await("#devices-count", "5,000")
	b.Await("#stat-slots", "40,000 of 50,000")
}

// lateHolds has a pod hold the last slot of the last device, which it returns.
func lateHolds(t testing.TB, c *cluster) (device string) {
	t.Helper()
	last := instanceOf("sensors", "sensor-04999", "node-049")
	c.change(func(o *view.Objects) {
		p := assigned(t, podOf("plant", "late", "sensors", 1, time.Now()), "node-049", "sensors", time.Now(), last+"-9")
		p = running(p, time.Now())
		o.Pods = added(o.Pods, p)
		o.Claims = added(o.Claims, claimOf(last+"-9", &p, v1alpha1.ConfigurationLevel, time.Now()))
	})
	return last
}

// With 5,000 devices the page keeps few elements, follows changes, and scrolls to the last
// device. How long that takes: BenchmarkFiveThousandDevices.
func TestFiveThousandDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("a page of 50,000 slots: make test-all")
	}
	c, b := fiveThousand(t)
	b.Picture("page")
	if elements := browser.Eval[int](b, "document.querySelectorAll('*').length"); elements > 5000 {
		t.Errorf("the page has %d elements, want 5,000 at most", elements)
	}
	last := lateHolds(t, c)
	b.Await("#stat-slots", "40,001 of 50,000")
	b.Await("#activity", "plant/late holds sensor-04999 slot 9")
	browser.Eval[float64](b, "scrollTo(0, document.documentElement.scrollHeight); scrollY")
	b.Await(slotAt(last, "9"), "held by plant/late")
	b.Picture("end")
	b.Search("late")
	b.Await("#devices-count", "1 of 5,000")
}

// With 5,000 devices the page is there within seconds, and a change does not take its time.
// It fails beyond the bounds: make test-all runs it once.
func BenchmarkFiveThousandDevices(b *testing.B) {
	c, tab := fiveThousand(b)
	browser.Call(tab, performance.Enable, performance.EnableParams{})
	bound := func(value, most float64, unit string) {
		b.Helper()
		b.ReportMetric(value, unit)
		if value > most {
			b.Errorf("%.1f %s, want %.1f at most", value, unit, most)
		}
	}
	for b.Loop() { // without the server's start
		tab.Do(chromedp.Reload())
		showsAll(tab)
	}
	bound(browser.Eval[float64](tab, `performance.getEntriesByName('first-contentful-paint')[0].startTime`), 3000, "ms-first-paint")
	bound(browser.Eval[float64](tab, `performance.getEntriesByName('kubeslot-drawn')[0].startTime`), 10_000, "ms-drawn")
	browser.Call(tab, heapprofiler.CollectGarbage, cdp.Empty{})
	metrics := browser.Call(tab, performance.GetMetrics, cdp.Empty{}).Metrics
	heap := slices.IndexFunc(metrics, func(m *performance.Metric) bool { return m.Name == "JSHeapUsedSize" })
	if heap < 0 {
		b.Fatalf("the browser does not say how large its heap is: %+v", metrics)
	}
	bound(metrics[heap].Value/(1<<20), 150, "MiB-heap-of-page")
	lateHolds(b, c)
	tab.Await("#activity", "plant/late holds sensor-04999 slot 9")
	bound(browser.Eval[float64](tab, `performance.getEntriesByName('kubeslot-draw').at(-1).duration`), 500, "ms-update-drawn")
}

// What a refresh costs the server at that size.
func BenchmarkRefresh(b *testing.B) {
	c := large(b, 5000, 10, time.Now())
	given := map[types.UID]map[string][]assignment.Grant{} // as source.Live keeps it
	for i := range c.o.Pods {
		held, err := assignment.Held(&c.o.Pods[i])
		if err != nil {
			b.Fatal(err)
		}
		given[c.o.Pods[i].UID] = held
	}
	c.o.Held = func(p *corev1.Pod) (map[string][]assignment.Grant, error) { return given[p.UID], nil }
	h := NewHub(c, clock.RealClock{})
	h.refresh(b.Context())
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		c.change(func(o *view.Objects) {
			if i%2 == 0 {
				o.Pods = o.Pods[:len(o.Pods)-1]
			} else {
				o.Pods = append(o.Pods[:len(o.Pods):len(o.Pods)], corev1.Pod{})
			}
		})
		h.refresh(b.Context())
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap")
	_, _, _, err := h.After(0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(h.all))/(1<<20), "MiB-full")
}
