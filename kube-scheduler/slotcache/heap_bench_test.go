package slotcache

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// BenchmarkHeapAtStart lists the DeviceSlices of 5,000 nodes with five devices each, as the watch
// streams them, beside 64 MiB of other objects. It reports what is live when all are read and none
// is replaced, and what is live and what the heap takes once the ledger has them.
func BenchmarkHeapAtStart(b *testing.B) {
	const nodes, each, mib = 5_000, 5, 1 << 20
	var others [][]byte
	for range 64 << 10 {
		others = append(others, make([]byte, 1<<10))
	}
	for _, name := range []string{"read", "entered"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before, clock := heap(), clocktesting.NewFakeClock(time.Now())
				c := New(klog.Background(), clock, nil)
				c.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cam"},
					Spec: akriv0.ConfigurationSpec{Capacity: 2, InstanceNameDigits: slot.LongHash}})
				f := c.SliceFeed()
				all := cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithTransformer(f.Transformer()))
				for n := range nodes {
					if err := all.Add(decoded(b, n, each)); err != nil {
						b.Fatal(err)
					}
				}
				if name == "read" { // a collection here has other gaps left at the end
					b.ReportMetric(float64(heap().HeapAlloc-before.HeapAlloc)/mib, "MiB")
					runtime.KeepAlive(all)
					continue
				}
				list := all.List()
				all = nil
				if err := f.Replace(list, "1"); err != nil {
					b.Fatal(err)
				}
				list = nil
				left := heap()
				b.ReportMetric(float64(left.HeapAlloc-before.HeapAlloc)/mib, "MiB")
				b.ReportMetric(float64(left.HeapInuse-before.HeapInuse)/mib, "in-use-MiB")
				runtime.KeepAlive(c)
			}
		})
	}
	runtime.KeepAlive(others)
}

// heap is as after a collection.
func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// decoded is a node's slice as it is read from the API.
func decoded(b *testing.B, n, devices int) *v1alpha1.DeviceSlice {
	node := fmt.Sprintf("node-%05d", n)
	s := &v1alpha1.DeviceSlice{Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
	s.Name, s.UID, s.ResourceVersion = node+"-0", uuid.NewUUID(), fmt.Sprint(100_000+n)
	s.CreationTimestamp = metav1.Unix(int64(n), 0)
	s.OwnerReferences = []metav1.OwnerReference{v1alpha1.NodeOwner(node, types.UID(uuid.NewUUID()))}
	for i := range devices {
		d := v1alpha1.Device{ID: fmt.Sprintf("/dev/video%d", i)}
		d.Configuration = v1alpha1.ConfigurationReference{Namespace: "ns", Name: "cam"}
		d.Hash = slot.InstanceHash(d.ID, false, node, slot.LongHash)
		d.Properties = map[string]string{"DEVICE": d.ID}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	var again v1alpha1.DeviceSlice
	if err := json.Unmarshal(raw, &again); err != nil {
		b.Fatal(err)
	}
	return &again
}
