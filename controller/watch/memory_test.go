package watch

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The benchmark's cluster: so many nodes with so many devices each, every one with a broker.
const benchNodes, devicesOfNode = 200, 50

// BenchmarkMemory reports the heap that the caches and the inventory take for an Instance (its object
// and its device in a DeviceSlice) and for a broker (its pod, the metadata of that, and its SlotClaim):
//
//	go test ./controller/watch -run '^$' -bench Memory -benchtime 1x
func BenchmarkMemory(b *testing.B) {
	text, err := os.ReadFile("testdata/broker.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for name, transform := range map[string]toolscache.TransformFunc{
		"whole": cache.TransformStripManagedFields(), "trimmed": TrimMade,
	} {
		b.Run(name, func(b *testing.B) {
			c := benchCluster{B: b, inventory: inventory.New(), transform: transform, broker: string(text)}
			cameras := metav1.ObjectMeta{Namespace: "default", Name: "cameras"}
			c.inventory.SetConfiguration(&akriv0.Configuration{ObjectMeta: cameras})
			start := heap()
			for n := range benchNodes {
				c.addNode(n)
			}
			made := heap()
			for n := range benchNodes {
				for d := range devicesOfNode {
					c.addBroker(n, deviceOf(n, d))
				}
			}
			end := heap()
			const devices = benchNodes * devicesOfNode
			b.ReportMetric(float64(made-start)/devices, "B/Instance")
			b.ReportMetric(float64(end-made)/devices, "B/broker")
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(c)
		})
	}
}

// BenchmarkMemoryOfSharedDevices reports the heap for each node that lists a device that all of them see.
func BenchmarkMemoryOfSharedDevices(b *testing.B) {
	for name, transform := range map[string]toolscache.TransformFunc{
		"whole": cache.TransformStripManagedFields(), "once": newSharing().transform,
	} {
		b.Run(name, func(b *testing.B) {
			c := benchCluster{B: b, inventory: inventory.New()}
			cameras := metav1.ObjectMeta{Namespace: "default", Name: "cameras"}
			c.inventory.SetConfiguration(&akriv0.Configuration{ObjectMeta: cameras})
			start := heap()
			for n := range benchNodes {
				owner := v1alpha1.NodeOwner(node(n), uid(node(n)))
				s := &v1alpha1.DeviceSlice{ObjectMeta: stored("", node(n)+"-0", owner)}
				s.Spec.NodeName = node(n)
				for d := range v1alpha1.MaxDevices {
					device := deviceOf(0, d)
					device.Shared, device.Hash = true, slot.InstanceHash(device.ID, true, "", slot.ShortHash)
					s.Spec.Devices = append(s.Spec.Devices, device)
				}
				s = received(b, s, &v1alpha1.DeviceSlice{}, transform)
				c.keep("slices", s)
				c.inventory.SetSlice(s)
			}
			b.ReportMetric(float64(heap()-start)/benchNodes/v1alpha1.MaxDevices, "B/report")
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(c)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// benchCluster is what the controller keeps of a cluster.
type benchCluster struct {
	*testing.B
	inventory *inventory.Inventory
	stores    map[string]toolscache.Store // by kind
	transform toolscache.TransformFunc    // of what the controller made
	broker    string                      // YAML
}

// addNode adds a node with its DeviceSlice, and the Instances of its devices.
func (c *benchCluster) addNode(n int) {
	c.inventory.SetNode(node(n), inventory.Node{UID: types.UID(node(n)), Ready: true})
	s := &v1alpha1.DeviceSlice{ObjectMeta: stored("", node(n)+"-0", v1alpha1.NodeOwner(node(n), uid(node(n))))}
	s.Spec.NodeName = node(n)
	for d := range devicesOfNode {
		device := deviceOf(n, d)
		s.Spec.Devices = append(s.Spec.Devices, device)
		owner := naming.OwnedBy("Configuration", &metav1.ObjectMeta{Name: "cameras", UID: uid("cameras")})
		i := &akriv0.Instance{ObjectMeta: stored("default", device.Instance(), owner)}
		i.Spec = akriv0.InstanceSpec{ConfigurationName: "cameras", CDIName: "akri.sh/cameras=" + device.Hash,
			Capacity: 1,
			Nodes:    []string{node(n)}, BrokerProperties: device.Properties,
			DeviceUsage: map[string]string{device.Instance() + "-0": "C:" + string(uid(device.ID)) + ":" + node(n)}}
		c.keep("instances", received(c.B, i, &akriv0.Instance{}, cache.TransformStripManagedFields()))
	}
	s = received(c.B, s, &v1alpha1.DeviceSlice{}, cache.TransformStripManagedFields())
	c.keep("slices", s)
	c.inventory.SetSlice(s)
}

// addBroker adds the device's broker pod and its claim.
func (c *benchCluster) addBroker(n int, device v1alpha1.Device) {
	instance := device.Instance()
	text := strings.NewReplacer("NODE", node(n), "INSTANCE", instance, "UID", string(uid(device.ID))).Replace(c.broker)
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(text), pod); err != nil {
		c.Fatal(err)
	}
	c.keep("pods", received(c.B, pod, &corev1.Pod{}, c.transform))
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}
	c.keep("metadata", received(c.B, metadata, &metav1.PartialObjectMetadata{}, trimPod))
	claim := v1alpha1.NewSlotClaim(slot.Name{Instance: instance}, v1alpha1.SlotClaimSpec{NodeName: node(n),
		Level: v1alpha1.ConfigurationLevel, Holder: string(pod.UID), Container: "broker",
		Pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}, metav1.OwnerReference{})
	claim.ObjectMeta = stored("", claim.Name, v1alpha1.NodeOwner(node(n), uid(node(n))))
	claim = received(c.B, claim, &v1alpha1.SlotClaim{}, cache.TransformStripManagedFields())
	c.keep("claims", claim)
	c.inventory.SetClaim(claim)
}

func (c *benchCluster) keep(kind string, o any) {
	if c.stores == nil {
		c.stores = map[string]toolscache.Store{}
	}
	if c.stores[kind] == nil {
		c.stores[kind] = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	}
	if err := c.stores[kind].Add(o); err != nil {
		c.Fatal(err)
	}
}

// received is an object as a watch delivers it: decoded, with strings of its own, and transformed.
func received[T any](b *testing.B, o, into T, transform toolscache.TransformFunc) T {
	b.Helper()
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	var kept any
	if err == nil {
		kept, err = transform(into)
	}
	if err != nil {
		b.Fatal(err)
	}
	return kept.(T)
}

func node(n int) string {
	return fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", n/256, n%256)
}

func uid(of string) types.UID { return types.UID(naming.Hash(of) + "-4c2e-9d55-9d3cdd5a4ce1") }

// stored is metadata as an API server has it.
func stored(namespace, name string, owner metav1.OwnerReference) metav1.ObjectMeta {
	fields := metav1.NewFieldsV1(`{"f:spec":{"f:nodes":{}}}`)
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid(name), ResourceVersion: "123456789",
		CreationTimestamp: metav1.Now(), OwnerReferences: []metav1.OwnerReference{owner},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubeslot", FieldsType: "FieldsV1", FieldsV1: fields}}}
}

func deviceOf(n, d int) v1alpha1.Device {
	id := fmt.Sprintf("/devices/pci0000:00/0000:00:14.0/usb1/1-%d/1-%d:1.0/video4linux/video%d", d, d, d)
	properties := map[string]string{"UDEV_DEVNODE": fmt.Sprint("/dev/video", d)}
	for i := range 6 {
		properties[fmt.Sprint("UDEV_PROPERTY_", i)] = fmt.Sprintf("Some value of a camera's property, %d", i)
	}
	return v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cameras"},
		ID:   id,
		Hash: slot.InstanceHash(id, false, node(n), slot.ShortHash), Properties: properties}
}
