package ui

import (
	"runtime"
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

// With 5,000 devices of ten slots, 40,000 of them held, the page is there within
// seconds, keeps few elements, follows changes, and scrolls to the last device.
func TestFiveThousandDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: make test-all")
	}
	c := large(t, 5000, 10, time.Now())
	b := browser.Open(t, serve(t, c), 1440, 900)
	b.Await("#devices-count", "5,000")
	b.Await("#stat-slots", "40,000 of 50,000")
	b.Picture("page")

	// Once more, to measure without the server's start.
	browser.Call(b, performance.Enable, performance.EnableParams{})
	b.Do(chromedp.Reload())
	b.Await("#devices-count", "5,000")
	painted := browser.Eval[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`)
	drawn := browser.Eval[float64](b, `performance.getEntriesByName('kubeslot-drawn')[0].startTime`)
	elements := browser.Eval[int](b, "document.querySelectorAll('*').length")
	browser.Call(b, heapprofiler.CollectGarbage, cdp.Empty{})
	var heap float64
	for _, m := range browser.Call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "JSHeapUsedSize" {
			heap = m.Value
		}
	}
	t.Logf("first paint %.0f ms, devices drawn after %.0f ms, %d elements, heap of the page %.1f MiB", painted, drawn, elements, heap/(1<<20))
	if painted > 3000 || drawn > 10_000 || elements > 5000 || heap > 150<<20 {
		t.Error("want ≤ 3 s, ≤ 10 s, ≤ 5,000 elements, ≤ 150 MiB")
	}

	// A change shows, and does not take the page's time.
	last := instanceOf("sensors", "sensor-04999", "node-049")
	c.change(func(o *view.Objects) {
		p := running(assigned(t, podOf("plant", "late", "sensors", 1, time.Now()), "node-049", "sensors", time.Now(), last+"-9"), time.Now())
		o.Pods = added(o.Pods, p)
		o.Claims = added(o.Claims, claimOf(last+"-9", &p, v1alpha1.ConfigurationLevel, time.Now()))
	})
	b.Await("#stat-slots", "40,001 of 50,000")
	b.Await("#activity", "plant/late holds sensor-04999 slot 9")
	took := browser.Eval[float64](b, `performance.getEntriesByName('kubeslot-draw').at(-1).duration`)
	t.Logf("an update is drawn in %.0f ms", took)
	if took > 500 {
		t.Errorf("an update is drawn in %.0f ms, want ≤ 500", took)
	}
	browser.Eval[float64](b, "scrollTo(0, document.documentElement.scrollHeight); scrollY")
	b.Await(slotAt(last, "9"), "held by plant/late")
	b.Picture("end")
	b.Search("late")
	b.Await("#devices-count", "1 of 5,000")
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
	h := NewHub(c, About{}, clock.RealClock{})
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
