package devicepluginmode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// kubelet is a model of one: it knows each plugin's list as it was some time ago, and
// gives out ids that none of its pods has (devicemanager, devicesToAllocate).
type kubelet struct {
	*rig
	lists map[key][]string // healthy ids, as last seen
	pods  map[int]*podOf
}

type podOf struct {
	key   key
	ids   []string
	slots []slot.Name
}

// restart has another process be the node's kubecri, which has read the API server. What the former one has asked
// for is done by then.
func (k *kubelet) restart(t *testing.T, a *api, spec akriv0.ConfigurationSpec) {
	former := k.rig
	a.deliver()
	k.rig = newRigWith(t, a, former.Node, spec, func(c *Config) {
		c.Runtime, c.PodResources = former.machine, former.machine
	}, "east", "west")
	k.machine, k.retryEvery = former.machine, former.retryEvery
	k.clock.SetTime(former.clock.Now())
	k.shown = k.clock.Now()
}

// show has pod-resources and the runtime show the pods. A pod's containers may not be
// there yet.
func (k *kubelet) show(containers bool) {
	k.machine.listed, k.machine.containers = nil, nil
	for n, p := range k.pods {
		k.machine.listed = append(k.machine.listed, &podresourcesapi.PodResources{Name: fmt.Sprint("p", n), Namespace: "ns", Containers: []*podresourcesapi.ContainerResources{{
			Devices: []*podresourcesapi.ContainerDevices{{ResourceName: assignment.ResourcePrefix + p.key.name(), DeviceIds: p.ids}}}}})
		if !containers {
			continue
		}
		c := &runtimeapi.Container{Id: fmt.Sprint("c", n), PodSandboxId: fmt.Sprint("s", n), Annotations: map[string]string{}}
		for i, s := range p.slots {
			holder := ""
			if p.key.instance == "" {
				holder = p.ids[i]
			}
			key, value := slot.Annotation(s, holder)
			c.Annotations[key] = value
		}
		k.machine.containers = append(k.machine.containers, c)
	}
}

// seesLists has the kubelet see what the plugins list now.
func (k *kubelet) seesLists() {
	for of := range k.inventory.keys(true) {
		k.lists[of] = nil
		for _, d := range k.resource(of).List() {
			if d.Healthy {
				k.lists[of] = append(k.lists[of], d.ID)
			}
		}
	}
}

// free are the ids of a resource that no pod has.
func (k *kubelet) free(of key) []string {
	return slices.DeleteFunc(slices.Clone(k.lists[of]), func(id string) bool {
		for _, p := range k.pods {
			if p.key == of && slices.Contains(p.ids, id) {
				return true
			}
		}
		return false
	})
}

// Whatever two nodes do, by lists and news of whatever age: no slot has two holders, what
// a pod holds is claimed for it and listed as Healthy, and in the end none is left.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		no := false
		spec := rapid.SampledFrom([]akriv0.ConfigurationSpec{{}, {UniqueScope: akriv0.UniquePerNode}, {UniqueDevices: &no}}).Draw(rt, "spec")
		a := newAPI()
		nodes := []*kubelet{}
		for _, name := range []string{"a", "b"} {
			k := &kubelet{rig: newRig(t, a, name, spec, "east", "west"), lists: map[key][]string{}, pods: map[int]*podOf{}}
			k.retryEvery = time.Microsecond
			k.seesLists()
			nodes = append(nodes, k)
		}
		count := 0
		steps := []string{"start", "start", "start", "stop", "news", "lists", "refresh", "lost", "late", "deliver",
			"restart"}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			k := nodes[rapid.IntRange(0, 1).Draw(rt, "node")]
			switch rapid.SampledFrom(steps).Draw(rt, "step") {
			case "start":
				count++
				of := rapid.SampledFrom(slices.SortedFunc(maps.Keys(k.inventory.keys(true)), func(a, b key) int { return len(a.instance + b.instance) })).Draw(rt, "resource")
				k.start(rt, of, count)
			case "stop":
				if len(k.pods) > 0 {
					delete(k.pods, rapid.SampledFrom(slices.Sorted(maps.Keys(k.pods))).Draw(rt, "pod"))
					k.show(true)
				}
			case "news":
				k.catchUp(rapid.IntRange(1, 5).Draw(rt, "news"))
			case "lists":
				k.seesLists()
			case "refresh":
				k.step(time.Duration(rapid.IntRange(0, 4).Draw(rt, "seconds")) * time.Second)
				k.show(rapid.Bool().Draw(rt, "containers"))
				if err := k.refresh(quiet(rt)); err != nil && !k.api.lost && !k.api.late {
					rt.Fatal(err)
				}
			case "lost":
				a.lost = !a.lost
			case "late":
				a.late = !a.late
			case "deliver":
				a.deliver()
			case "restart":
				k.restart(t, a, spec)
				if err := k.refresh(quiet(rt)); err != nil && !a.lost && !a.late {
					rt.Fatal(err)
				}
			}
			check(rt, a, nodes, spec)
		}
		a.lost, a.late = false, false
		a.deliver()
		for _, k := range nodes {
			clear(k.pods)
			k.show(true)
		}
		for range 2 {
			for _, k := range nodes {
				k.catchUp(1000)
				k.step(settling) // from when it has seen a claim that it does not know
				if err := k.refresh(quiet(rt)); err != nil {
					rt.Fatal(err)
				}
				k.step(settling)
			}
		}
		if usage := a.usage(); len(usage) > 0 {
			rt.Fatalf("claims that nobody holds: %v", usage)
		}
	})
}

// quiet is a context without logs: there would be thousands of lines.
func quiet(rt *rapid.T) context.Context { return klog.NewContext(rt.Context(), klog.Logger{}) }

// start has the kubelet admit a pod.
func (k *kubelet) start(rt *rapid.T, of key, n int) {
	free := k.free(of)
	size := rapid.IntRange(1, 2).Draw(rt, "size")
	if len(free) < size {
		return
	}
	ctx := quiet(rt)
	if k.api.late { // what waits for a deletion is not done in time
		late, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		ctx = late
	}
	ids, err := k.prefer(ctx, of, free, nil, size)
	if err != nil {
		return
	}
	if len(ids) != size || slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(free, id) }) {
		rt.Fatalf("of %v, %d: prefers %v", free, size, ids)
	}
	if rapid.Bool().Draw(rt, "refreshed between") {
		k.show(true)
		if err := k.refresh(quiet(rt)); err != nil && !k.api.lost && !k.api.late {
			rt.Fatal(err)
		}
	}
	if rapid.IntRange(0, 3).Draw(rt, "other choice") == 0 { // the kubelet need not heed us
		ids = rapid.Permutation(free).Draw(rt, "ids")[:size]
	}
	answer, err := k.allocate(ctx, of, ids)
	if err != nil {
		return
	}
	p := &podOf{key: of, ids: ids, slots: make([]slot.Name, len(ids))}
	for key, value := range answer.Annotations {
		name, holder, _, err := slot.ParseAnnotation(key, value)
		if err != nil {
			rt.Fatal(err)
		}
		if holder == "" {
			holder = name.String()
		}
		p.slots[slices.Index(ids, holder)] = name
	}
	if len(answer.Annotations) != size {
		rt.Fatalf("%d ids, and annotations %v", size, answer.Annotations)
	}
	k.pods[n] = p
	k.show(rapid.Bool().Draw(rt, "containers"))
}

// check looks at what is never to be.
func check(rt *rapid.T, a *api, nodes []*kubelet, spec akriv0.ConfigurationSpec) {
	usage, holders := a.usage(), map[slot.Name]string{}
	for _, k := range nodes {
		byInstance := map[string]int{}
		for n, p := range k.pods {
			instances := map[string]bool{}
			for i, s := range p.slots {
				who := fmt.Sprintf("pod %d of node %s", n, k.Node)
				if other := holders[s]; other != "" {
					rt.Fatalf("slot %s is held by %s and by %s", s, other, who)
				}
				holders[s] = who
				want := slot.Usage{Node: k.Node}
				if p.key.instance == "" {
					want.Holder = p.ids[i]
					byInstance[s.Instance]++
				}
				if usage[s.String()] != want.String() {
					rt.Fatalf("slot %s of %s is claimed by %q, want %q", s, who, usage[s.String()], want)
				}
				instances[s.Instance] = true
			}
			if p.key.instance == "" && spec.Unique() != "" && len(instances) != len(p.slots) {
				rt.Fatalf("a container has %v", p.slots)
			}
			listed := map[string]bool{}
			for _, d := range k.resource(p.key).List() {
				listed[d.ID] = d.Healthy
			}
			for _, id := range p.ids {
				if !listed[id] {
					rt.Fatalf("id %s of a pod on node %s is not listed as Healthy: %v", id, k.Node, listed)
				}
			}
		}
		if spec.Unique() == akriv0.UniquePerNode {
			for instance, n := range byInstance {
				if n > 1 {
					rt.Fatalf("node %s has %d slots of Instance %s", k.Node, n, instance)
				}
			}
		}
	}
}
