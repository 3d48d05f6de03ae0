package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// agree checks that a running pod's annotation, environment, container
// annotations and the claims tell the same, and returns its slots.
func (r *rig) agree(name, configuration string, count int) []string {
	r.Helper()
	p := r.awaitRunning(name)
	info, err := assignment.Granted(p.Annotations, string(p.UID), p.Spec.NodeName)
	r.check(err)
	if info == nil {
		r.Fatalf("pod %s has no assignment: %v", name, p.Annotations)
	}
	main := info.RunningContainers["main"]
	grants, err := assignment.Grants(&main)
	r.check(err)
	if len(grants) != count {
		r.Fatalf("pod %s is assigned %v, want %d slots", name, grants, count)
	}

	env := r.env(name)
	var devices []struct {
		Instance, Slot string
		Properties     map[string]string
	}
	r.check(json.Unmarshal([]byte(env["AKRI_DEVICES"]), &devices))
	var slots []string
	wantAnnotations := map[string]string{}
	claims := r.claims(configuration)
	for i, g := range grants {
		slot := g.Slot.String()
		slots = append(slots, slot)
		holder, claim := "C:"+string(p.UID)+":", heldBy(p)
		if g.InstanceLevel() {
			holder, claim = "", claim.byName()
		}
		wantAnnotations["akri.agent.slot-"+slot] = holder + slot
		if claims[slot] != claim {
			r.Errorf("the claim of %s is %v, want %v", slot, claims[slot], claim)
		}
		hash := strings.ToUpper(g.Slot.Instance[strings.LastIndex(g.Slot.Instance, "-")+1:])
		if len(devices) != len(grants) || devices[i].Slot != slot || devices[i].Instance != g.Slot.Instance {
			r.Errorf("AKRI_DEVICES is %s, want entry %d to be %s", env["AKRI_DEVICES"], i, slot)
			continue
		}
		for k, v := range devices[i].Properties {
			if env[k+"_"+hash] != v {
				r.Errorf("%s_%s is %q, want %q", k, hash, env[k+"_"+hash], v)
			}
			if _, there := env[k]; there && k == "LD_PRELOAD" {
				r.Errorf("%s is %q", k, env[k])
			} else if i == 0 && k != "LD_PRELOAD" && env[k] != v {
				r.Errorf("%s is %q, want the first device's %q", k, env[k], v)
			}
		}
	}
	containers := slices.DeleteFunc(r.containers(p.Spec.NodeName, p), func(c *runtimeapi.Container) bool {
		// A former one, or one that was not started because the runtime died; not removed yet.
		return c.State != runtimeapi.ContainerState_CONTAINER_RUNNING
	})
	if len(containers) != 1 {
		r.Fatalf("containers of %s that run: %v, want one", name, containers)
	}
	annotations := containers[0].Annotations
	if slices.Contains(shared.Config().NRI, p.Spec.NodeName) { // CRI does not show them
		annotations = r.specAnnotations(p.Spec.NodeName, containers[0].Id)
	}
	if got := slotAnnotations(annotations); !maps.Equal(got, wantAnnotations) {
		r.Errorf("container annotations of %s: %v, want %v", name, got, wantAnnotations)
	}
	return slots
}

func TestTwoCameras(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	devices := r.debugEcho("cams", 2, func(c *akriv0.Configuration) {
		c.Spec.PropertyPrefixes = []string{"DEBUG_ECHO_", "SITE", "LD_"}
		c.Spec.BrokerProperties = map[string]string{"SITE": "gate", "LD_PRELOAD": "/evil.so"}
	}, "foo0", "foo1")
	if devices[0].name != "cams-8120fe" && devices[1].name != "cams-8120fe" {
		t.Errorf("the Instance of foo0 should be cams-8120fe, got %s and %s", devices[0].name, devices[1].name)
	}
	r.awaitView("cams")
	for _, node := range []string{nodeA, nodeB} {
		r.await("node "+node+" to advertise the cameras", func() (bool, string) {
			n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
			r.check(err)
			info, err := assignment.DecodeNode(n.Annotations)
			r.check(err)
			for _, list := range []v1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
				if q := list["akri.sh/cams"]; q.Value() != 4 {
					return false, fmt.Sprintf("it has %v, want 4", q.Value())
				}
			}
			return info != nil && info.Name == node, fmt.Sprintf("annotation %v", info)
		})
	}

	r.create(newPod("one", nodeA, map[string]int64{"cams": 2}))
	r.create(newPod("two", nodeB, map[string]int64{"cams": 2}))
	all := append(r.agree("one", "cams", 2), r.agree("two", "cams", 2)...)
	slices.Sort(all)
	if len(slices.Compact(all)) != 4 {
		t.Fatalf("slots are given twice: %v", all)
	}
	env := r.env("one")
	if env["SITE"] != "gate" || env["DEBUG_ECHO_DESCRIPTION_8120FE"] != "foo0" || env["LD_PRELOAD_8120FE"] != "/evil.so" {
		t.Errorf("environment: %v", env)
	}
	r.await("the status to say which properties are no variables", func() (bool, string) {
		c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, "cams", metav1.GetOptions{})
		r.check(err)
		for _, p := range c.Status.Problems {
			if p.Reason == "PropertiesWithheld" && strings.Contains(p.Message, "does not let it: LD_PRELOAD. ") {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", c.Status.Problems)
	})

	r.create(newPod("three", "", map[string]int64{"cams": 2}))
	r.awaitPending("three", `short of akri.sh/cams: container "main" needs 2`, "0 of 4 slots free", "4 held")
	r.delete("one")
	r.agree("three", "cams", 2)
	r.delete("two")
	r.delete("three")
	r.awaitClaims("cams", map[string]holding{})
}

func TestInstanceLevelAndSeveralContainers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	devices := r.debugEcho("il", 2, nil, "il0", "il1")
	// One by name and one of any kind in one container; init and app containers
	// share slots.
	p := newPod("both", nodeA, map[string]int64{"il": 1, devices[1].name: 1})
	second := *p.Spec.Containers[0].DeepCopy()
	second.Name = "second"
	second.Resources.Requests = v1.ResourceList{"akri.sh/il": resource.MustParse("2")}
	second.Resources.Limits = second.Resources.Requests
	init := *second.DeepCopy()
	init.Name, init.Args = "prepare", []string{"exit", "0"}
	p.Spec.Containers = append(p.Spec.Containers, second)
	p.Spec.InitContainers = []v1.Container{init}
	r.create(p)
	p = r.awaitRunning("both")
	info, err := assignment.Granted(p.Annotations, string(p.UID), nodeA)
	r.check(err)
	if len(info.InitContainers["prepare"].AllocateFrom) != 2 || len(info.RunningContainers["second"].AllocateFrom) != 2 ||
		len(info.RunningContainers["main"].AllocateFrom) != 2 {
		t.Fatalf("assignment: %s", p.Annotations[assignment.Annotation])
	}
	if got := r.claims("il"); len(got) != 4 || got[devices[1].name+"-0"] != heldBy(p).byName() {
		t.Errorf("claims: %v, want all four slots claimed and the first of %s by name", got, devices[1].name)
	}
	byName := map[string]*runtimeapi.Container{}
	for _, c := range r.containers(nodeA, p) {
		byName[c.Metadata.Name] = c
	}
	if a := slotAnnotations(byName["main"].Annotations); a["akri.agent.slot-"+devices[1].name+"-0"] != devices[1].name+"-0" || len(a) != 2 {
		t.Errorf("annotations of main: %v", a)
	}
	r.delete("both")
	r.awaitClaims("il", map[string]holding{})
}

// A container gets the device's mounts and real device nodes.
func TestMountsAndDeviceNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	r.debugEcho("dev", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(`
descriptions: [zero]
mounts: [{containerPath: /data, hostPath: %s, readOnly: true}]
deviceSpecs: [{containerPath: /dev/cam0, hostPath: /dev/zero, permissions: r}]
`, dir)
	}, "zero")
	r.create(newPod("p", nodeA, map[string]int64{"dev": 1}))
	r.awaitRunning("p")
	if got := strings.TrimSpace(r.exec("p", "read", "/dev/cam0", "4")); got != "00000000" {
		t.Errorf("read from /dev/cam0: %q", got)
	}
	if got := r.exec("p", "ls", "/data"); strings.Contains(got, "no such") {
		t.Errorf("ls /data: %q", got)
	}
	// A pod that was given nothing sees nothing.
	r.create(newPod("plain", nodeA, nil))
	r.awaitRunning("plain")
	if out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, "plain", "--", "/app", "read", "/dev/cam0", "4"); err == nil {
		t.Errorf("a plain pod reads /dev/cam0: %q", out)
	}
	if env := r.env("plain"); env["AKRI_DEVICES"] != "" {
		t.Errorf("a plain pod has AKRI_DEVICES=%s", env["AKRI_DEVICES"])
	}
}

// A device that is not shared is one Instance a node, and pods follow it.
func TestLocalDevices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEchoUnchecked("usb", "debugEcho", `{"descriptions": ["stick"], "shared": false}`)
	devices := r.awaitDevices("usb", 2)
	r.awaitAdvertised("usb", 1, devices)
	for _, d := range devices {
		if len(d.nodes) != 1 || d.shared {
			t.Errorf("%s: shared %v, nodes %v", d.name, d.shared, d.nodes)
		}
	}
	r.create(newPod("byname", "", map[string]int64{devices[0].name: 1}))
	if p := r.awaitRunning("byname"); p.Spec.NodeName != devices[0].nodes[0] {
		t.Errorf("the pod runs on %s, its device is on %v", p.Spec.NodeName, devices[0].nodes)
	}
	r.create(newPod("any", "", map[string]int64{"usb": 1}))
	if p := r.awaitRunning("any"); p.Spec.NodeName != devices[1].nodes[0] {
		t.Errorf("the pod runs on %s, where the device is held", p.Spec.NodeName)
	}
}

// With spec.discovery one node discovers, and the pods of all nodes that are selected
// get the devices, with their properties.
func TestDiscoveredByOneNode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.check(r.createConfiguration("single", akriv0.ConfigurationSpec{Capacity: 2, Discovery: &akriv0.Discovery{Replicas: 1},
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: `{"descriptions": ["once0"]}`}}))
	both := []string{nodeA, nodeB}
	r.awaitAdvertised("single", 2, []device{{nodes: both}})
	r.await("the Instance to show both nodes", func() (bool, string) {
		in := r.instances("single")
		return len(in) == 1 && slices.Equal(in[0].Spec.Nodes, both), fmt.Sprint(in)
	})
	if d := r.devices("single"); len(d) != 1 || len(d[0].nodes) != 1 {
		t.Errorf("reported by more than one node: %v", d)
	}
	for _, node := range both {
		r.create(newPod(node, node, map[string]int64{"single": 1}))
		r.agree(node, "single", 1)
		if env := r.env(node); env["DEBUG_ECHO_DESCRIPTION"] != "once0" {
			t.Errorf("environment on %s: %v", node, env)
		}
	}
}

// A pod with users of its own (hostUsers: false) reads what its device mounts as
// the user that it is on the node: files of the node's root are its root's.
func TestUserNamespacedPod(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.usersOfItsOwn(nodeA)
}

func (r *rig) usersOfItsOwn(onNode string) {
	r.Helper()
	dir := r.TempDir()
	r.check(os.Chmod(filepath.Dir(dir), 0o755)) // the way to it is for everybody
	r.check(os.Chmod(dir, 0o700))
	r.check(writeFile(filepath.Join(dir, "secret"), "cam!"))
	node := filepath.Join(r.TempDir(), "cam0")
	r.check(syscall.Mknod(node, syscall.S_IFCHR|0o666, 1<<8|5)) // as /dev/zero
	r.check(os.Chmod(node, 0o666))
	r.debugEcho("users", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(`
descriptions: [zero]
mounts: [{containerPath: /data, hostPath: %s, readOnly: true}]
deviceSpecs: [{containerPath: %[2]s, hostPath: %[2]s, permissions: r}]
`, dir, node)
	}, "zero")
	p := newPod("users", onNode, map[string]int64{"users": 1})
	no := false
	p.Spec.HostUsers = &no
	r.create(p)
	r.agree("users", "users", 1)
	uids, err := hex.DecodeString(strings.TrimSpace(r.exec("users", "read", "/proc/self/uid_map", "100")))
	if ids := strings.Fields(string(uids)); err != nil || len(ids) < 3 || ids[1] == "0" {
		r.Errorf("the pod has the node's users: %q, %v", uids, err)
	}
	if got := strings.TrimSpace(r.exec("users", "read", "/data/secret", "4")); got != "63616d21" {
		r.Errorf("read of a file of the node's root: %q", got)
	}
	if got := strings.TrimSpace(r.exec("users", "read", node, "4")); got != "00000000" {
		r.Errorf("read from the device node: %q", got)
	}
}
