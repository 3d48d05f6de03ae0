package helm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A cluster that had Akri moves to Kubeslot and back, by the steps of
// docs/migrate-from-akri.md. Here are Akri's objects as its chart, agents and controller
// leave them when they stop: definitions, a Configuration with the agents' finalizers, its
// Instance, a broker with its Services, and a resource that nobody advertises any more.
func TestMigrateFromAkri(t *testing.T) {
	testAll(t, "moves from Akri and back")
	in := up(t, 12*time.Minute)
	before := in.state()
	in.kubectl("create", "--field-manager=helm", "-f", "testdata/akri/crds.yaml") // as helm does it
	in.await("Akri's definitions to be served", func() (bool, string) {
		out, err := in.Kubectl(in.ctx, "get", "configurations,instances")
		return err == nil, out
	})
	instance := slot.InstanceName("akri-debug-echo", slot.InstanceHash("foo0", true, "", slot.ShortHash))
	in.apply(fmt.Sprintf(akrisObjects, cluster.AppImage))
	for _, n := range in.Nodes() { // as each agent does
		_, err := in.client.AkriV0().Configurations("default").Patch(in.ctx, "akri-debug-echo", types.ApplyPatchType,
			[]byte(`{"apiVersion":"akri.sh/v0","kind":"Configuration","metadata":{"name":"akri-debug-echo","finalizers":["`+n.Name+`"]}}`), metav1.PatchOptions{FieldManager: n.Name + "-fin"})
		in.check(err)
	}
	in.apply(fmt.Sprintf(akrisInstance, instance, in.uid("configuration", "akri-debug-echo")))
	in.apply(fmt.Sprintf(akrisBroker, instance, in.uid("instance", instance), cluster.AppImage, in.uid("configuration", "akri-debug-echo")))
	broker := "node-a-" + instance + "-pod"
	in.awaitRunning(broker)
	started, address := in.containerID(broker), in.kubectl("get", "service", instance+"-svc", "-o", "jsonpath={.spec.clusterIP}")
	for _, n := range in.Nodes() { // what a kubelet leaves of a device plugin that is gone
		_, err := in.kube.CoreV1().Nodes().Patch(in.ctx, n.Name, types.MergePatchType,
			[]byte(strings.ReplaceAll(`{"status":{"capacity":LIST,"allocatable":LIST}}`, "LIST", `{"akri.sh/akri-debug-echo":"0","akri.sh/`+instance+`":"0"}`)), metav1.PatchOptions{}, "status")
		in.check(err)
	}

	// Akri's definitions are in the way, and helm says so before it makes anything.
	waiting := in.state()
	if _, err := in.tryHelm("install", "--create-namespace"); err == nil || !strings.Contains(err.Error(), `CustomResourceDefinition "configurations.akri.sh"`) ||
		!strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("helm install beside Akri's definitions: %v", err)
	}
	in.expect(waiting, "Secret "+namespace+"/sh.helm.release") // of the failed attempt
	in.install("--take-ownership", "--force-conflicts")

	// The Configuration, the Instance and the broker are taken over as they are.
	in.await("the Instance to be reached by both nodes", func() (bool, string) {
		out := in.kubectl("get", "instance", instance, "-o", "jsonpath={.spec.nodes} {.metadata.finalizers}")
		return out == `["node-a","node-b"] `, out
	})
	in.await("the agents' finalizers to be gone", func() (bool, string) {
		out := in.kubectl("get", "configuration", "akri-debug-echo", "-o", "jsonpath={.metadata.finalizers}")
		return out == "", out
	})
	in.await("the broker to be ours", func() (bool, string) {
		out := in.kubectl("get", "pod", broker, "-o", "jsonpath={.metadata.annotations}")
		return strings.Contains(out, "kubeslot.io/broker-spec"), out
	})
	if id := in.containerID(broker); id != started {
		t.Errorf("the broker's container was %s, and is %s since the move", started, id)
	}
	if now := in.kubectl("get", "service", instance+"-svc", "-o", "jsonpath={.spec.clusterIP}"); now != address {
		t.Errorf("the Instance's Service had the address %s, and has %s", address, now)
	}
	in.create(pod("user", "kubeslot", "akri-debug-echo"))
	in.awaitRunning("user")

	// Brokers get slots of ours when they are replaced. The device has two.
	in.delete("user")
	in.check(in.kube.CoreV1().Pods("default").Delete(in.ctx, broker, metav1.DeleteOptions{}))
	in.await("a broker with a slot of ours", func() (bool, string) {
		out, err := in.Kubectl(in.ctx, "get", "pod", broker, "-o", `jsonpath={.status.phase} {.metadata.annotations.KubeDevice/DeviceInfo}`)
		return err == nil && strings.HasPrefix(out, "Running {") && strings.Contains(out, instance+"-"), out
	})

	// And back: Kubeslot goes, Akri's definitions come, and take the Configuration as it is.
	const akris = "jsonpath={.spec.discoveryHandler} {.spec.capacity} {.spec.brokerSpec} {.spec.brokerProperties} {.spec.instanceServiceSpec} {.spec.configurationServiceSpec}"
	spec := in.kubectl("get", "configuration", "akri-debug-echo", "-o", akris)
	in.uninstall()
	in.apply(readFile(t, "testdata/akri/crds.yaml"))
	in.kubectl("delete", "instances", "--all")
	if now := in.kubectl("get", "configuration", "akri-debug-echo", "-o", akris); now != spec {
		t.Errorf("Akri's definitions make of the Configuration\n%s\nand it was\n%s", now, spec)
	}
	for _, n := range in.Nodes() {
		if out := in.kubectl("get", "node", n.Name, "-o", "jsonpath={.status.capacity}"); strings.Contains(out, "akri.sh/") {
			t.Errorf("node %s has %s, and Akri's agents are to advertise it anew", n.Name, out)
		}
	}
	in.kubectl("delete", "configurations", "--all")
	in.kubectl("delete", "pods", "--all", "--grace-period=1")
	in.kubectl("delete", "services", "-l", "controller=akri.sh")
	in.kubectl("delete", "crd", "configurations.akri.sh", "instances.akri.sh", "deviceslices.kubeslot.io", "slotclaims.kubeslot.io")
	in.expect(before, "Secret "+namespace+"/sh.helm.release")
}

func (in *install) uid(kind, name string) string {
	in.Helper()
	return in.kubectl("get", kind, name, "-o", "jsonpath={.metadata.uid}")
}

const akrisObjects = `
apiVersion: akri.sh/v0
kind: Configuration
metadata:
  name: akri-debug-echo
  namespace: default
spec:
  discoveryHandler:
    name: debugEcho
    discoveryDetails: |+
      descriptions:
      - foo0
  capacity: 2
  brokerProperties: {}
  brokerSpec:
    brokerPodSpec:
      containers:
      - name: akri-debug-echo-broker
        image: %q
        imagePullPolicy: Never
        resources:
          requests: {"{{PLACEHOLDER}}": "1", memory: 10Mi, cpu: 10m}
          limits: {"{{PLACEHOLDER}}": "1", memory: 30Mi, cpu: 29m}
  instanceServiceSpec: {type: ClusterIP, ports: [{name: grpc, port: 6052, protocol: TCP, targetPort: 6052}]}
  configurationServiceSpec: {type: ClusterIP, ports: [{name: grpc, port: 6052, protocol: TCP, targetPort: 6052}]}
`

const akrisInstance = `
apiVersion: akri.sh/v0
kind: Instance
metadata:
  name: %[1]s
  namespace: default
  finalizers: [node-a, node-b]
  ownerReferences: [{apiVersion: akri.sh/v0, kind: Configuration, name: akri-debug-echo, uid: %[2]s, controller: true, blockOwnerDeletion: true}]
spec:
  configurationName: akri-debug-echo
  cdiName: akri.sh/akri-debug-echo=foo0
  capacity: 2
  shared: true
  nodes: [node-a, node-b]
  brokerProperties: {DEBUG_ECHO_DESCRIPTION: foo0}
  deviceUsage: {%[1]s-0: node-a, %[1]s-1: ""}
`

// The broker runs already, so its resource is left out: here is no agent to give it.
const akrisBroker = `
apiVersion: v1
kind: Pod
metadata:
  name: node-a-%[1]s-pod
  namespace: default
  labels: {app: node-a-%[1]s-pod, controller: akri.sh, akri.sh/configuration: akri-debug-echo, akri.sh/instance: %[1]s, akri.sh/target-node: node-a}
  ownerReferences: [{apiVersion: akri.sh/v0, kind: Instance, name: %[1]s, uid: %[2]s, controller: true, blockOwnerDeletion: true}]
spec:
  nodeName: node-a
  terminationGracePeriodSeconds: 1
  containers:
  - name: akri-debug-echo-broker
    image: %[3]q
    imagePullPolicy: Never
---
apiVersion: v1
kind: Service
metadata:
  name: %[1]s-svc
  namespace: default
  labels: {app: %[1]s-svc, controller: akri.sh, akri.sh/instance: %[1]s}
  ownerReferences: [{apiVersion: akri.sh/v0, kind: Instance, name: %[1]s, uid: %[2]s, controller: true, blockOwnerDeletion: true}]
spec:
  selector: {controller: akri.sh, akri.sh/instance: %[1]s}
  ports: [{name: grpc, port: 6052, protocol: TCP, targetPort: 6052}]
---
apiVersion: v1
kind: Service
metadata:
  name: akri-debug-echo-svc
  namespace: default
  labels: {app: akri-debug-echo-svc, controller: akri.sh, akri.sh/configuration: akri-debug-echo}
  ownerReferences: [{apiVersion: akri.sh/v0, kind: Configuration, name: akri-debug-echo, uid: %[4]s, controller: true, blockOwnerDeletion: true}]
spec:
  selector: {controller: akri.sh, akri.sh/configuration: akri-debug-echo}
  ports: [{name: grpc, port: 6052, protocol: TCP, targetPort: 6052}]
`
