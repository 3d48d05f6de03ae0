package configurationresources

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	devicetypes "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// ids are of devices with hashes that read well: the first camera is cam-000001, and
// cameras are in the order of their names.
var ids = map[string]string{
	"000000": "dev14618690", "000001": "dev22867305", "000002": "dev19100459", "000003": "dev6560310",
	"000004": "dev8977938", "000005": "dev1017475", "00000a": "dev1150920", "00000b": "dev19918885",
}

var otherIDs sync.Map // by hash

// camera is the name of the camera with any other id.
func camera(id any) string {
	hash := slot.InstanceHash(fmt.Sprint(id), true, "", slot.ShortHash)
	otherIDs.Store(hash, fmt.Sprint(id))
	return slot.InstanceName("cam", hash)
}

// reported is the device as nodes report it.
func reported(name string) v1alpha1.Device {
	configuration, hash := slot.SplitInstance(name)
	id := ids[hash]
	if id == "" {
		other, ok := otherIDs.Load(hash)
		if !ok {
			panic("no id is known of which the hash is " + hash)
		}
		id = other.(string)
	}
	return v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: configuration}, ID: id, Hash: hash, Shared: true}
}

// slice is what the node reports of the devices, as the API has it.
func slice(node, suffix string, devices ...v1alpha1.Device) *v1alpha1.DeviceSlice {
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + suffix},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: devices}}
}

// claim is that of a slot with the value that deviceUsage would have: "C:<holder>:<node>",
// or "<node>" for one that was taken through its Instance.
func claim(name, usage string) *v1alpha1.SlotClaim {
	n, u := must(slot.Parse(name)), must(slot.ParseUsage(usage))
	spec := v1alpha1.SlotClaimSpec{NodeName: u.Node, Level: v1alpha1.ConfigurationLevel, Holder: u.Holder}
	if !u.ConfigurationLevel() {
		spec.Level, spec.Holder = v1alpha1.InstanceLevel, "somebody"
	}
	c := v1alpha1.NewSlotClaim(n, spec, v1alpha1.NodeOwner(u.Node, ""))
	c.UID = types.UID("claim of " + name + " as " + usage)
	return c
}

// cameras is the Configuration cam, of so many slots a device.
func cameras(capacity int) *akriv0.Configuration {
	return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "default"},
		Spec: akriv0.ConfigurationSpec{Capacity: int32(capacity)}}
}

// device tells the slot cache that these nodes reach the device, and no others any more, and
// that its slots are claimed so, and no others any more. Each node has a slice for it.
func device(b *slotcache.Cache, name string, claims map[string]string, nodes ...string) {
	for s, usage := range claims {
		b.SetClaim(claim(s, usage))
	}
	_, hash := slot.SplitInstance(name)
	before, reaches := map[string]bool{}, map[string]bool{}
	b.Read(func(l *ledger.Ledger) { // a scheduler may run beside
		l.EachSlice(func(slice string) {
			if node, ok := strings.CutSuffix(slice, "-"+hash); ok {
				before[node] = true
			}
		})
	})
	for _, node := range nodes {
		if reaches[node] = true; !before[node] {
			b.SetSlice(slice(node, hash, reported(name)))
		}
	}
	for node := range before {
		if !reaches[node] {
			b.DeleteSlice(node + "-" + hash)
		}
	}
	var released []*v1alpha1.SlotClaim
	b.Read(func(l *ledger.Ledger) {
		l.EachClaim(func(s string) {
			if _, ok := claims[s]; strings.HasPrefix(s, name+"-") && !ok {
				c := &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: s}}
				c.UID = types.UID(l.ClaimUID(s))
				released = append(released, c)
			}
		})
	})
	for _, c := range released {
		b.DeleteClaim(c)
	}
}

// shared tells the slot cache of a device that node-a and node-b reach, without claims.
func shared(b *slotcache.Cache, names ...string) {
	for _, name := range names {
		device(b, name, nil, "node-a", "node-b")
	}
}

// pod asks for cameras.
func pod(name, quantity string) *v1.Pod { return asks(name, "cam", quantity) }

// asks makes a pod that requests slots of the resource.
func asks(name, resourceName, quantity string) *v1.Pod {
	amount := v1.ResourceList{v1.ResourceName(assignment.ResourcePrefix + resourceName): resource.MustParse(quantity)}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid"), Annotations: map[string]string{}},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{Name: "main",
			Resources: v1.ResourceRequirements{Requests: amount, Limits: amount}}}},
	}
}

func withPriority(p *v1.Pod, priority int32) *v1.Pod {
	p.Spec.Priority = &priority
	return p
}

func important(name string) *v1.Pod { return withPriority(pod(name, "1"), 100) }

// nominatedTo is the pod as the API shows it once it is nominated to the node.
func nominatedTo(p *v1.Pod, node string) *v1.Pod {
	p = p.DeepCopy()
	p.Status.NominatedNodeName = node
	return p
}

// bound is the pod as the API shows it after the plugin's Binding.
func bound(p *v1.Pod, node string, a ledger.Assignment) *v1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = node
	info := &devicetypes.PodInfo{NodeName: node, RunningContainers: partOf(a)}
	maps.Copy(p.Annotations, must(assignment.Encode(info, string(p.UID), nil)))
	return p
}

// ending is the pod as the API shows it once it is deleted, until its node has
// stopped it.
func ending(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return p
}

// slotsOf is the first slot of the camera.
func slotsOf(camera string) ledger.Assignment {
	return ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: camera}}}}
}

var cam1 = slotsOf("cam-000001")

// crowd is n names.
func crowd(n int) []string { return crowdOf("p", n) }

func crowdOf(what string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%03d", what, i)
	}
	return names
}

// advertising is a node that advertises so many slots of cameras, "" for a node that has none.
func advertising(name, slots string) *v1.Node {
	amounts := v1.ResourceList{"cpu": resource.MustParse("1000"), "pods": resource.MustParse("10000")}
	if slots != "" {
		amounts["akri.sh/cam"] = resource.MustParse(slots)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{Capacity: amounts, Allocatable: amounts}}
}

// nodeInfo is of a node that advertises enough.
func nodeInfo(name string) *framework.NodeInfo { return infoOf(advertising(name, "100")) }

// infoOf is what the scheduler knows of a node that runs the pods.
func infoOf(node *v1.Node, pods ...*v1.Pod) *framework.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(node)
	return info
}

// store is an informer's.
func store[T any](objects ...T) cache.Indexer {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, obj := range objects {
		check(indexer.Add(obj))
	}
	return indexer
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
