package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// buildStatic builds programs of the repository into a folder, without cgo.
func buildStatic(dir string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}, packages...)...)
	cmd.Dir, cmd.Env = shared.Config().RepoRoot, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
}

// networkDevice is a device of the network that both nodes reach.
type networkDevice struct {
	configuration, handler, details string
	// program simulates it, on a machine of the configuration's name.
	program string
	args    func(ip string) []string
	// property of it, and a part of the property's value.
	property, value string
}

var networkDevices = []networkDevice{
	{configuration: "echo", handler: "debugEcho", details: `descriptions: [echo0]`, property: "DEBUG_ECHO_DESCRIPTION", value: "echo0"},
	{configuration: "camera", handler: "onvif", details: `{}`,
		program: "onvifcamera", args: func(string) []string { return []string{"--interface=eth0", "--verbose"} },
		property: "ONVIF_DEVICE_SERVICE_URL", value: "http://IP"},
	{configuration: "plc", handler: "opcua", details: `{opcuaDiscoveryMethod: {standard: {discoveryUrls: ["opc.tcp://IP:4840/"]}}}`,
		program: "opcuaserver", args: func(ip string) []string { return []string{"--address=" + ip} },
		property: "OPCUA_DISCOVERY_URL", value: "opc.tcp://IP:4840"},
	{configuration: "printer", handler: "mdns", details: `{services: [_ipp._tcp]}`,
		program: "mdnsservice", args: func(string) []string { return []string{"--type=_ipp._tcp", "--host=printer", "--port=631"} },
		property: "MDNS_ADDRESS", value: "IP"},
}

// node-b's kubecri has no handler of its own: they run as processes beside it, while
// node-a's are built in. So a device of both nodes is one Instance only if both kinds
// name it alike.
func TestStandaloneHandlers(t *testing.T) {
	testAll(t, "is idle for a minute")
	r := newRig(t)
	usb := r.usbMachine()
	r.check(shared.SetKubecriArgs(r.ctx, nodeB, "--discovery-handlers=", "--handler-allowed-paths=usb="+usb.Tree.Dev))
	t.Cleanup(func() { r.check(shared.SetKubecriArgs(context.Background(), nodeB)) })
	var handlers []string
	for _, name := range []string{"debug-echo", "udev", "onvif", "mdns"} {
		handlers = append(handlers, r.standalone(nodeB, name))
	}
	handlers = append(handlers, r.standalone(nodeB, "usb", usbFlags(usb)...))
	handlers = append(handlers, r.standalone(nodeB, "opcua", "--pod-ip="+shared.Nodes()[1].IP)) // by TCP
	for _, d := range networkDevices {
		r.oneDeviceOfBothNodes(d)
	}

	// Devices of node-b alone.
	r.zigbeeStick(nodeB)
	r.discover("taps", "udev", 1, `udevRules: ['SUBSYSTEM=="macvtap", KERNELS=="alone*"']`)
	tap := r.plugIn(nodeB, "alone0")
	r.awaitInstance("taps", nodeB)
	r.create(newPod("taps", "", map[string]int64{"taps": 1}))
	r.agree("taps", "taps", 1)
	r.exec("taps", "read", tap.Device, "0") // opens it

	r.writesNothing()
	r.nothingIsLost("handlers killed", func() {
		before, reported := r.versions(), r.reported()
		for _, program := range handlers {
			r.check(shared.Kill(program, nodeB, syscall.SIGKILL))
		}
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			r.kept("handlers gone", before, reported)
		}
		for _, program := range handlers {
			r.check(shared.Start(program, nodeB))
		}
	})
	r.nothingIsLost("kubecri killed", func() { r.check(shared.Restart(cluster.Kubecri, nodeB)) })

	// The device ends, and says so if its protocol can.
	for _, d := range networkDevices {
		if d.program == "" || d.handler == "opcua" { // looked for each 10 s
			continue
		}
		begin := time.Now()
		r.stop(d.program, d.configuration)
		r.awaitWithdrawn(d.configuration)
		t.Logf("%s: withdrawn %v after its end", d.configuration, time.Since(begin))
	}
	r.unplug(nodeB, "alone0")
	r.awaitWithdrawn("taps")
	r.awaitEvent("taps", "DeviceGone")
}

// nothingIsLost has something happen to node-b's handlers or its kubecri, by which no
// Instance may be written, no claim lost and no container restarted, and after which a
// device is found that is plugged in.
func (r *rig) nothingIsLost(what string, happen func()) {
	r.Helper()
	r.settle()
	before, reported, running := r.versions(), r.reported(), r.runningContainers()
	happen()
	begin := time.Now()
	r.plugIn(nodeB, "alone1")
	r.awaitDevices("taps", 2)
	r.Logf("%s: a new device was found after %v", what, time.Since(begin))
	r.unplug(nodeB, "alone1")
	r.awaitInstance("taps", nodeB)
	r.kept(what, before, reported)
	if now := r.runningContainers(); !maps.Equal(now, running) {
		r.Errorf("%s: the containers are %v, were %v", what, now, running)
	}
}

// kept checks that the Instances and claims that there were have not been written, and
// that the nodes' slices have the same devices. Of a handler that is gone they say so.
func (r *rig) kept(what string, versions, reported map[string]string) {
	r.Helper()
	now := r.versions()
	for name, version := range versions {
		if kind, _, _ := strings.Cut(name, "/"); (kind == "instances" || kind == "slotclaims") && now[name] != version {
			r.Errorf("%s: %s has resource version %q, had %q", what, name, now[name], version)
		}
	}
	if devices := r.reported(); !maps.Equal(devices, reported) {
		r.Errorf("%s: the nodes report %v, reported %v", what, devices, reported)
	}
}

// reported are the devices of the test that the nodes report, by node.
func (r *rig) reported() map[string]string {
	r.Helper()
	list, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	reported := map[string]string{}
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if d.Configuration.Namespace == r.ns {
				reported[s.Spec.NodeName+" "+d.Instance()] = fmt.Sprintf("%+v", d)
			}
		}
	}
	return reported
}

// runningContainers are the IDs of the containers that run, by pod.
func (r *rig) runningContainers() map[string]string {
	r.Helper()
	pods, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	ids := map[string]string{}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running != nil {
				ids[p.Name] += s.ContainerID
			}
		}
	}
	return ids
}

// oneDeviceOfBothNodes adds the device, and has a pod of each node share it.
func (r *rig) oneDeviceOfBothNodes(d networkDevice) {
	ip := ""
	if d.program != "" {
		ip = r.machine(d.configuration).IP
		r.run(cluster.Program{Name: d.program, On: d.configuration, Argv: append([]string{r.program(d.program)}, d.args(ip)...)})
	}
	at := strings.NewReplacer("IP", ip)
	r.discover(d.configuration, d.handler, 2, at.Replace(d.details))
	in := r.awaitInstance(d.configuration, nodeA, nodeB)
	if !in.Spec.Shared {
		r.Errorf("Instance %s is not shared", in.Name)
	}
	r.awaitAdvertised(d.configuration, 2, r.devices(d.configuration))
	for _, node := range []string{nodeA, nodeB} {
		pod := d.configuration + "-" + node
		r.create(newPod(pod, node, map[string]int64{d.configuration: 1}))
		r.agree(pod, d.configuration, 1)
		env := r.env(pod)
		if !strings.Contains(env[d.property], at.Replace(d.value)) {
			r.Errorf("%s: %s is %q, want %q in it", pod, d.property, env[d.property], at.Replace(d.value))
		}
		if url := env[d.property]; d.handler == "onvif" && !strings.Contains(r.exec(pod, "get", url), "HTTP/1.1 ") {
			r.Errorf("%s does not reach its camera at %s", pod, url)
		}
	}
	r.awaitView(d.configuration)
}
