package slotcache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// configuration has one slot a device.
func configuration(name string) *akriv0.Configuration {
	return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: akriv0.ConfigurationSpec{Capacity: 1}}
}

// asking is a pod that asks for a slot of the resource. Its name is its UID.
func asking(name, of string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceName(assignment.ResourcePrefix + of): resource.MustParse("1")}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}}}}
}

// waitingCache leads, and has so many waiting pods, of 100 Configurations that exist and 100
// names that do not.
func waitingCache(pods int) *Cache {
	b := New(klog.Background(), testclock.NewFakeClock(time.Now()), nil)
	b.AddProfile(v1.DefaultSchedulerName, &config.ConfigurationResourcesArgs{})
	b.Lead()
	for i := range 100 {
		b.SetConfiguration(configuration(fmt.Sprint("cam", i)))
	}
	for i := range pods {
		b.SetPod(asking(fmt.Sprint("p", i), fmt.Sprint("cam", i%200)))
	}
	return b
}

// collectorOf is registered, so that it has what its metrics are of.
func collectorOf(b *Cache) *Collector {
	c := &Collector{}
	c.Report(b)
	metrics.NewKubeRegistry().CustomMustRegister(c)
	return c
}

// Who scrapes may stop to read at any metric. The lock, which scheduling needs, is free then.
func TestScrapeHoldsNoLockWhileItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitingCache(200)
		ch := make(chan metrics.Metric)
		go func() {
			defer close(ch)
			collectorOf(b).CollectWithStability(ch)
		}()
		sent := 0
		for more := true; more; sent++ {
			synctest.Wait() // it waits for a reader
			if !b.mu.TryLock() {
				t.Errorf("metric %d is not read, and the slot cache is locked", sent)
			} else {
				b.mu.Unlock()
			}
			_, more = <-ch
		}
		if want := 100*5 + 2 + 1 + 2*101; sent-1 != want {
			t.Errorf("%d metrics were sent, want %d", sent-1, want)
		}
	})
}

// BenchmarkScrape is one scrape, with so many waiting pods.
func BenchmarkScrape(b *testing.B) {
	for _, pods := range []int{0, 1_000, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", pods), func(b *testing.B) {
			c := collectorOf(waitingCache(pods))
			b.ReportAllocs()
			for b.Loop() {
				ch := make(chan metrics.Metric, 10_000)
				c.CollectWithStability(ch)
			}
		})
	}
}
