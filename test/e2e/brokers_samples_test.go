package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/docs"
)

// ourImages has every pod of the namespace run the test image instead of its own, which
// cannot be pulled here, until it is ended. So Configurations stay as they are.
func (r *rig) ourImages() {
	r.Helper()
	const container = "/spec/containers/0/"
	expression := `[
		JSONPatch{op: "replace", path: "` + container + `image", value: "` + cluster.AppImage + `"},
		JSONPatch{op: "add", path: "` + container + `imagePullPolicy", value: "Never"},
		JSONPatch{op: "add", path: "` + container + `args", value: ["run"]},
	] + (has(object.spec.containers[0].command) ? [JSONPatch{op: "remove", path: "` + container + `command"}] : [])`
	fail, api := admissionv1.Fail, kube.AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Create(r.ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.ns}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}},
		Mutations:          []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}},
		FailurePolicy:      &fail,
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}}, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() {
		r.check(api.MutatingAdmissionPolicies().Delete(context.Background(), r.ns, metav1.DeleteOptions{}))
	})
	_, err = api.MutatingAdmissionPolicyBindings().Create(r.ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: r.ns}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName: r.ns, MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: r.ns}}},
	}}, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() {
		r.check(api.MutatingAdmissionPolicyBindings().Delete(context.Background(), r.ns, metav1.DeleteOptions{}))
	})
	r.await("pods to get the test image", func() (bool, string) {
		p := newPod("probe", "", nil)
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = "nginx", []string{"nginx"}
		p, err := kube.CoreV1().Pods(r.ns).Create(r.ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		r.check(err)
		c := p.Spec.Containers[0]
		return c.Image == cluster.AppImage && len(c.Command) == 0, fmt.Sprint(c.Image, c.Command)
	})
}

// applySample applies one of testdata/akri, with replacements, and waits until it has so
// many Instances. Its Configuration is deleted with the test, and leaves nothing.
func (r *rig) applySample(name, configuration string, instances int, oldnew ...string) {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(shared.Config().RepoRoot, "test/e2e/testdata/akri", name+".yaml"))
	r.check(err)
	r.applyConfiguration(strings.NewReplacer(oldnew...).Replace(string(text)), configuration, instances)
}

// applyConfiguration applies a text, and waits until the Configuration has so many Instances.
func (r *rig) applyConfiguration(text, configuration string, instances int) {
	r.Helper()
	file := filepath.Join(r.TempDir(), configuration+".yaml")
	r.check(writeFile(file, text))
	_, err := shared.Kubectl(r.ctx, "apply", "-n", r.ns, "-f", file)
	r.check(err)
	r.await(fmt.Sprintf("%d Instances of %s", instances, configuration), func() (bool, string) {
		in := r.instances(configuration)
		return len(in) == instances, fmt.Sprint(in, r.status(configuration).Problems)
	})
}

func (r *rig) deleteSample(configuration string) {
	r.Helper()
	_, err := shared.Kubectl(r.ctx, "delete", "-n", r.ns, "configuration", configuration)
	r.check(err)
	r.nothingLeft()
}

// awaitServices waits until the namespace has exactly these Services, with so many
// endpoints each that are ready.
func (r *rig) awaitServices(want map[string]int) {
	r.Helper()
	r.await(fmt.Sprintf("the Services %v", want), func() (bool, string) {
		services, err := kube.CoreV1().Services(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		got := map[string]int{}
		for _, s := range services.Items {
			got[s.Name] = 0
		}
		endpoints, err := kube.DiscoveryV1().EndpointSlices(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		for _, s := range endpoints.Items {
			of := s.Labels["kubernetes.io/service-name"]
			if _, there := got[of]; !there {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					got[of]++
				}
			}
		}
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
	})
}

// brokerEnv is the environment in a broker's one container.
func (r *rig) brokerEnv(pod string) map[string]string {
	r.Helper()
	out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, pod, "--", "/app", "env")
	r.check(err)
	env := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	return env
}

// awaitSample waits until a sample's brokers run on these nodes for each Instance, behind
// their Services, and returns the pods' environments by name.
func (r *rig) awaitSample(configuration string, sharedDevice bool, nodes ...string) map[string]map[string]string {
	r.Helper()
	var pods []string
	services := map[string]int{}
	for _, in := range r.instances(configuration) {
		for _, node := range nodes {
			if sharedDevice {
				pods = append(pods, node+"-"+in.Name+"-pod")
			} else {
				pods = append(pods, in.Name+"-pod")
			}
		}
		services[in.Name+"-svc"] = len(nodes)
		services[configuration+"-svc"] += len(nodes)
	}
	envs := map[string]map[string]string{}
	for _, p := range r.awaitBrokers(pods...) {
		envs[p.Name] = r.brokerEnv(p.Name)
	}
	r.awaitServices(services)
	return envs
}

// endJobs ends the pods of the Configuration's Jobs, which are so many, and waits until
// all are complete.
func (r *rig) endJobs(configuration string, want int) {
	r.Helper()
	of := metav1.ListOptions{LabelSelector: "akri.sh/configuration=" + configuration}
	var pods *v1.PodList
	r.await("the pods of the Jobs of "+configuration+" to run", func() (bool, string) {
		var err error
		pods, err = kube.CoreV1().Pods(r.ns).List(r.ctx, of)
		r.check(err)
		phases := map[v1.PodPhase]int{}
		for _, p := range pods.Items {
			phases[p.Status.Phase]++
		}
		return phases[v1.PodRunning] == want && len(phases) == 1, fmt.Sprint(phases)
	})
	for _, p := range pods.Items {
		_, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, p.Name, "--", "/app", "end")
		if err != nil && !strings.Contains(err.Error(), "exit code 137") { // the container's end may kill it, too
			r.check(err)
		}
	}
	r.await("the Jobs of "+configuration+" to be complete", func() (bool, string) {
		jobs, err := kube.BatchV1().Jobs(r.ns).List(r.ctx, of)
		r.check(err)
		complete := 0
		for _, j := range jobs.Items {
			if slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobComplete && c.Status == v1.ConditionTrue
			}) {
				complete++
			}
		}
		return complete == want && len(jobs.Items) == want, fmt.Sprint(complete, " of ", len(jobs.Items))
	})
}

// Akri's sample Configurations apply as they are, and their brokers run, with an image of
// ours in place of theirs.
func TestAkrisSamples(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ourImages()

	r.applySample("debug-echo-pod", "akri-debug-echo-foo", 2)
	seen := map[string]int{}
	for _, env := range r.awaitSample("akri-debug-echo-foo", true, nodeA, nodeB) {
		seen[env["DEBUG_ECHO_DESCRIPTION"]]++
	}
	if seen["foo0"] != 2 || seen["foo1"] != 2 {
		t.Errorf("debug-echo-pod: brokers by device: %v", seen)
	}
	r.deleteSample("akri-debug-echo-foo")

	r.applySample("debug-echo-job", "akri-debug-echo-fee", 2)
	services := map[string]int{"akri-debug-echo-fee-svc": 2}
	for _, in := range r.instances("akri-debug-echo-fee") {
		services[in.Name+"-svc"] = 1
	}
	r.awaitServices(services)
	r.endJobs("akri-debug-echo-fee", 2)
	r.awaitServices(map[string]int{})
	r.deleteSample("akri-debug-echo-fee")

	camera := r.machine("camera")
	r.run(cluster.Program{Name: "onvifcamera", On: camera.Name, Argv: []string{r.program("onvifcamera"), "--interface=eth0", "--name=GreatONVIFCamera"}})
	r.machine("other-camera")
	r.run(cluster.Program{Name: "onvifcamera", On: "other-camera", Argv: []string{r.program("onvifcamera"), "--interface=eth0", "--uuid=11111111-2222-3333-4444-555555555555", "--name=Cheap"}})
	sample, err := os.ReadFile(filepath.Join(shared.Config().RepoRoot, "examples/from-akri/onvif-video.yaml"))
	r.check(err)
	r.applyConfiguration(string(sample), "akri-onvif-video", 1)
	for pod, env := range r.awaitSample("akri-onvif-video", true, nodeA, nodeB) {
		if want := "http://" + camera.IP; !strings.HasPrefix(env["ONVIF_DEVICE_SERVICE_URL"], want) {
			t.Errorf("%s: ONVIF_DEVICE_SERVICE_URL is %q, want %s…", pod, env["ONVIF_DEVICE_SERVICE_URL"], want)
		}
	}
	r.deleteSample("akri-onvif-video")

	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "opcua-broker-credentials"}, StringData: map[string]string{
		"client_certificate": "c", "client_key": "k", "ca_certificate": "ca", "ca_crl": "crl"}}
	_, err = kube.CoreV1().Secrets(r.ns).Create(r.ctx, secret, metav1.CreateOptions{})
	r.check(err)
	r.run(cluster.Program{Name: "opcuaserver", On: nodeA, Argv: []string{r.program("opcuaserver"), "--address=127.0.0.1"}})
	r.applySample("opcua", "akri-opcua", 0) // it keeps no server, see there
	if problems := r.status("akri-opcua").Problems; len(problems) > 0 {
		t.Errorf("opcua: %v", problems)
	}
	r.deleteSample("akri-opcua")
	r.applySample("opcua", "akri-opcua", 1, "action: Include", "action: Exclude")
	for pod, env := range r.awaitSample("akri-opcua", true, nodeA) {
		if !strings.HasPrefix(env["OPCUA_DISCOVERY_URL"], "opc.tcp://") || env["NAMESPACE_INDEX"] != "2" {
			t.Errorf("%s: environment %v", pod, env)
		}
		out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, pod, "--", "/app", "ls", "/etc/opcua-certs/client-pki/own/certs/")
		if err != nil || !strings.Contains(out, "AkriClient.der") {
			t.Errorf("%s: its certificates: %v, %s", pod, err, out)
		}
	}
	r.deleteSample("akri-opcua")
}

// The Configurations of docs/brokers.md apply as they are, and have brokers: pods that run,
// and Jobs that complete.
func TestConfigurationsOfThePageOfBrokers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ourImages()
	objects, err := docs.Objects(shared.Config().RepoRoot, "docs/brokers.md")
	r.check(err)
	objects = slices.DeleteFunc(objects, func(o string) bool { return !strings.HasPrefix(o, "apiVersion: ") }) // parts of one
	if len(objects) != 2 {
		t.Fatalf("the page has %d Configurations, want 2", len(objects))
	}
	r.applyConfiguration(objects[0], "cameras", 2)
	r.awaitSample("cameras", true, nodeA, nodeB)
	r.deleteSample("cameras")
	r.applyConfiguration(objects[1], "meters", 2)
	r.endJobs("meters", 2)
	r.deleteSample("meters")
}

// The same of the samples of udev, with recorded devices on one node.
func TestAkrisUdevSamples(t *testing.T) {
	testAll(t, "restarts kubecri")
	r := newRig(t)
	r.ourImages()
	m := sysfstest.New(t, "P: /devices/virtual/mem/null\nE: MAJOR=1\nE: MINOR=3\nE: SUBSYSTEM=mem\nN: null\n\n"+
		"P: /devices/platform/vivid.0/video4linux/video0\nE: MAJOR=81\nE: MINOR=0\nE: SUBSYSTEM=video4linux\nN: video0\n\n"+
		"P: /devices/platform/vivid.0/video4linux/vbi0\nE: MAJOR=81\nE: MINOR=1\nE: SUBSYSTEM=video4linux\nN: vbi0\n\n")
	for node, minor := range map[string]int{"null": 3, "video0": 5, "vbi0": 5} { // they can be opened, as /dev/null and /dev/zero
		path := filepath.Join(m.Tree.Dev, node)
		r.check(os.Remove(path))
		r.check(syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|minor))
	}
	flags := []string{"--sysfs=" + m.Tree.Sys, "--udev-data=" + m.Tree.UdevData, "--dev=" + m.Tree.Dev, "--handler-allowed-paths=udev=" + m.Tree.Dev}
	r.check(shared.SetKubecriArgs(r.ctx, nodeA, flags...))
	t.Cleanup(func() { r.check(shared.SetKubecriArgs(context.Background(), nodeA)) })

	r.applySample("udev-video", "akri-udev-video", 1)
	for pod, env := range r.awaitSample("akri-udev-video", false, nodeA) {
		if env["UDEV_DEVNODE"] != "/dev/video0" || env["UDEV_DEVPATH"] != "/devices/platform/vivid.0/video4linux/video0" || env["FORMAT"] != "YUYV" || env["FRAMES_PER_SECOND"] != "20" {
			t.Errorf("%s: environment %v", pod, env)
		}
		out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, pod, "--", "/app", "read", "/dev/video0", "4")
		if err != nil || strings.TrimSpace(out) != "00000000" {
			t.Errorf("%s reads from its camera: %v, %q", pod, err, out)
		}
		if p := r.pod(pod); p.Labels["akri.sh/target-node"] != nodeA || p.Spec.Containers[0].SecurityContext == nil || !*p.Spec.Containers[0].SecurityContext.Privileged {
			t.Errorf("%s has labels %v and the security context %v", pod, p.Labels, p.Spec.Containers[0].SecurityContext)
		}
	}
	r.deleteSample("akri-udev-video")

	r.applySample("udev-null", "akri-udev-dev-null", 2) // /dev/null of each node
}

// Akri's own e2e stories, with its Configuration: all is scheduled, the devices go offline
// and come back, a broker is deleted, the Configuration is.
func TestAkrisStories(t *testing.T) {
	testAll(t, "unplugs all devices of both nodes")
	r := newRig(t)
	r.ourImages()
	const configuration = "akri-debug-echo-foo"
	r.applySample("debug-echo-e2e", configuration, 2)
	for pod, env := range r.awaitSample(configuration, true, nodeA, nodeB) {
		if env["RESOLUTION_WIDTH"] != "800" || !strings.HasPrefix(env["DEBUG_ECHO_DESCRIPTION"], "bar") {
			t.Errorf("%s: environment %v", pod, env)
		}
	}
	var files []string
	for _, node := range shared.Nodes() {
		file := filepath.Join(node.KubecriDir, "debug-echo-availability.txt")
		r.check(writeFile(file, "OFFLINE\n"))
		t.Cleanup(func() { os.Remove(file) })
		files = append(files, file)
	}
	r.nothingLeft()
	for _, file := range files {
		r.check(writeFile(file, "ONLINE\n"))
	}
	r.await("both Instances again", func() (bool, string) {
		in := r.instances(configuration)
		return len(in) == 2, fmt.Sprint(len(in))
	})
	r.awaitSample(configuration, true, nodeA, nodeB)

	name := nodeB + "-" + r.instances(configuration)[1].Name + "-pod"
	before := r.pod(name)
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, name, metav1.DeleteOptions{}))
	r.await("another broker of the name "+name, func() (bool, string) {
		p, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, name, metav1.GetOptions{})
		return err == nil && p.UID != before.UID, fmt.Sprint(err)
	})
	r.awaitSample(configuration, true, nodeA, nodeB)
	r.deleteSample(configuration)
	r.awaitClaims(configuration, map[string]holding{})
}
