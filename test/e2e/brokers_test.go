package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// brokerPod is a broker's PodSpec: the test image with the arguments, and one slot of
// its Instance.
func brokerPod(change func(*v1.PodSpec), args ...string) *v1.PodSpec {
	p := newPod("", "", nil).Spec
	c := &p.Containers[0]
	c.Args = args
	c.Resources = v1.ResourceRequirements{}
	c.Resources.Limits = v1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")}
	if change != nil {
		change(&p)
	}
	return &p
}

// brokers makes a Configuration of simulated devices with brokers. The namespace's
// Configurations are deleted before it is cleaned up, and nothing may stay.
func (r *rig) brokers(name string, capacity int32, spec akriv0.BrokerSpec, change func(*akriv0.ConfigurationSpec), ids ...string) {
	r.Helper()
	details, err := json.Marshal(map[string]any{"descriptions": ids})
	r.check(err)
	c := akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: string(details)},
		Capacity: capacity, BrokerSpec: &spec, BrokerProperties: map[string]string{"LEVEL": "one"}}
	if change != nil {
		change(&c)
	}
	r.check(r.createConfiguration(name, c))
	r.Cleanup(func() {
		if r.Failed() {
			r.dump(context.Background())
		}
		r.check(akri.AkriV0().Configurations(r.ns).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		r.nothingLeft()
	})
}

func raw(r *rig, v any) *runtime.RawExtension {
	r.Helper()
	text, err := json.Marshal(v)
	r.check(err)
	// As a user writes it: what Go's types always encode is not there.
	text = []byte(strings.NewReplacer(`"creationTimestamp":null`, ``, `"resources":{},`, ``).Replace(string(text)))
	return &runtime.RawExtension{Raw: text}
}

func (r *rig) podBroker(p *v1.PodSpec) akriv0.BrokerSpec {
	return akriv0.BrokerSpec{BrokerPodSpec: raw(r, p)}
}

// nothingLeft waits until nothing is there that the controller made.
func (r *rig) nothingLeft() {
	r.Helper()
	r.await("everything of the brokers to be gone", func() (bool, string) {
		const kinds = "pods,services,jobs,resourceclaimtemplates"
		made, err := shared.Kubectl(context.Background(), "get", kinds, "-l", "controller=akri.sh", "-n", r.ns,
			"-o", "name")
		r.check(err)
		instances, err := shared.Kubectl(context.Background(), "get", "instances", "-n", r.ns, "-o", "name")
		r.check(err)
		return strings.TrimSpace(made+instances) == "", made + instances
	})
}

func (r *rig) patchConfiguration(name, patch string) {
	r.Helper()
	_, err := akri.AkriV0().Configurations(r.ns).Patch(r.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	r.check(err)
}

// awaitBrokers waits until exactly the named pods are there, all Ready.
func (r *rig) awaitBrokers(names ...string) []v1.Pod {
	r.Helper()
	slices.Sort(names)
	var found []v1.Pod
	r.await(fmt.Sprintf("the brokers %q", names), func() (bool, string) {
		list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "controller=akri.sh"})
		r.check(err)
		var ready []string
		seen := ""
		found = list.Items
		for _, p := range list.Items {
			seen += fmt.Sprintf("%s %s ready=%v going=%v; ", p.Name, p.Status.Phase, isReady(&p), p.DeletionTimestamp != nil)
			if isReady(&p) && p.DeletionTimestamp == nil {
				ready = append(ready, p.Name)
			}
		}
		slices.Sort(ready)
		return slices.Equal(ready, names) && len(list.Items) == len(names), seen
	})
	return found
}

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

// A broker runs on each node that reaches the device, with a slot of it; its Services
// come and go with it; what changes rolls out, and keeps the Services' addresses; when
// the Configuration goes, nothing stays.
func TestBrokerPods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const instance = "broke-8120fe"
	podA, podB := nodeA+"-"+instance+"-pod", nodeB+"-"+instance+"-pod"
	r.brokers("broke", 2, r.podBroker(brokerPod(func(p *v1.PodSpec) {
		p.Containers[0].Env = []v1.EnvVar{{Name: "WHO", Value: "{{INSTANCE}} on {{NODE}}, {{SLOT_COUNT}} of {{property:DEBUG_ECHO_DESCRIPTION}}"}}
	})), func(c *akriv0.ConfigurationSpec) {
		c.InstanceServiceSpec = &runtime.RawExtension{Raw: []byte(`{"type":"NodePort","ports":[{"name":"grpc","port":80,"targetPort":8083}]}`)}
		c.ConfigurationServiceSpec = &runtime.RawExtension{Raw: []byte(`{"ports":[{"name":"grpc","port":80,"targetPort":8083}]}`)}
	}, "foo0")

	before := map[string]types.UID{}
	for _, p := range r.awaitBrokers(podA, podB) {
		before[p.Name] = p.UID
		node := p.Spec.NodeName
		want := map[string]string{"app": p.Name, "controller": "akri.sh", "akri.sh/configuration": "broke", "akri.sh/instance": instance, "akri.sh/target-node": node}
		if !maps.Equal(p.Labels, want) || !strings.HasPrefix(p.Name, node+"-") {
			t.Errorf("pod %s on %s has labels %v, want %v", p.Name, node, p.Labels, want)
		}
		env := r.env(p.Name)
		if who := fmt.Sprintf("%s on %s, 1 of foo0", instance, node); env["WHO"] != who || env["DEBUG_ECHO_DESCRIPTION"] != "foo0" || env["LEVEL"] != "one" || !strings.Contains(env["AKRI_DEVICES"], instance+"-") {
			t.Errorf("the broker on %s has WHO=%q, want %q; all: %v", node, env["WHO"], who, env)
		}
	}
	held := map[string]bool{}
	for _, c := range r.slotClaims("broke") {
		held[c.Spec.NodeName+" "+c.Spec.Pod.Name] = true
	}
	if !maps.Equal(held, map[string]bool{nodeA + " " + podA: true, nodeB + " " + podB: true}) {
		t.Errorf("claims of %v", held)
	}
	service := func(name string) *v1.Service {
		var s *v1.Service
		r.await("Service "+name, func() (bool, string) {
			var err error
			s, err = kube.CoreV1().Services(r.ns).Get(r.ctx, name, metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		})
		return s
	}
	ofInstance, ofAll := service(instance+"-svc"), service("broke-svc")
	r.await("both brokers to be behind both Services", func() (bool, string) {
		for _, name := range []string{ofInstance.Name, ofAll.Name} {
			slicesOf, err := kube.DiscoveryV1().EndpointSlices(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + name})
			r.check(err)
			n := 0
			for _, s := range slicesOf.Items {
				n += len(s.Endpoints)
			}
			if n != 2 {
				return false, fmt.Sprintf("%s has %d endpoints", name, n)
			}
		}
		return true, ""
	})
	r.await("the status", func() (bool, string) {
		s := r.status("broke")
		return countsBrokers(s, 2, 2) && s.Brokers.Updated == 2 && s.Instances == 1 && s.Nodes == 2 &&
			s.Slots == akriv0.SlotCount{Total: 2, Held: 2} &&
			s.ObservedGeneration == 1 && len(s.Problems) == 0, fmt.Sprintf("%+v", s)
	})
	if m := r.controllerMetrics(); !containsAll(m, []string{`akri_broker_pod_count{configuration="broke",node="` + nodeA + `"} 1`, `akri_instance_count{configuration="broke",is_shared="true"} 1`}) {
		t.Errorf("metrics:\n%s", m)
	}

	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, podA, metav1.DeleteOptions{}))
	if again := r.awaitBrokers(podA, podB); again[0].UID == before[podA] || again[1].UID != before[podB] {
		t.Errorf("a broker that was deleted: %s %s; before %v", again[0].UID, again[1].UID, before)
	}

	// A change rolls out, one node after the other.
	watching, err := kube.CoreV1().Pods(r.ns).Watch(r.ctx, metav1.ListOptions{LabelSelector: "controller=akri.sh", ResourceVersion: "0"})
	r.check(err)
	defer watching.Stop()
	r.patchConfiguration("broke", `{"spec":{"brokerProperties":{"LEVEL":"two"},"instanceServiceSpec":{"ports":[{"name":"grpc","port":81,"targetPort":8083}]}}}`)
	r.await("both brokers with the other property", func() (bool, string) {
		pods := r.awaitBrokers(podA, podB)
		return pods[0].UID != before[podA] && pods[1].UID != before[podB], fmt.Sprint(pods[0].UID, pods[1].UID)
	})
	r.await("both brokers to be of the spec", func() (bool, string) {
		pods := r.awaitBrokers(podA, podB)
		return pods[0].Annotations["kubeslot.io/broker-spec"] == pods[1].Annotations["kubeslot.io/broker-spec"], fmt.Sprint(pods[0].Annotations, pods[1].Annotations)
	})
	watching.Stop()
	ready := map[string]bool{podA: true, podB: true}
	for event := range watching.ResultChan() {
		p, ok := event.Object.(*v1.Pod)
		if !ok {
			break
		}
		ready[p.Name] = isReady(p) && p.DeletionTimestamp == nil && event.Type != "DELETED"
		if !ready[podA] && !ready[podB] {
			t.Fatal("both brokers were away at once")
		}
	}
	for _, p := range []string{podA, podB} {
		if env := r.env(p); env["LEVEL"] != "two" {
			t.Errorf("%s has LEVEL=%s", p, env["LEVEL"])
		}
	}
	r.await("the Service to have the other port", func() (bool, string) {
		s := service(instance + "-svc")
		return s.Spec.Ports[0].Port == 81 && s.UID == ofInstance.UID && s.Spec.ClusterIP == ofInstance.Spec.ClusterIP, fmt.Sprintf("%+v", s.Spec)
	})
	if s := service("broke-svc"); s.UID != ofAll.UID {
		t.Error("the Configuration's Service was made anew")
	}

	// Capacity below the brokers.
	r.patchConfiguration("broke", `{"spec":{"capacity":1}}`)
	r.await("one broker", func() (bool, string) {
		list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		return len(list.Items) == 1 && isReady(&list.Items[0]), fmt.Sprint(len(list.Items))
	})
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "broke", metav1.DeleteOptions{}))
	r.nothingLeft()
	r.awaitClaims("broke", map[string]holding{})
}

// Akri's story: devices that vanish take their brokers and Services along, and bring
// them back.
func TestBrokersOfADeviceThatVanishes(t *testing.T) {
	testAll(t, "unplugs all devices of both nodes")
	r := newRig(t)
	r.brokers("vanish", 1, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.InstanceServiceSpec = &runtime.RawExtension{Raw: []byte(`{"ports":[{"port":80}]}`)}
		c.ConfigurationServiceSpec = c.InstanceServiceSpec
	}, "van0", "van1")
	made := func(pods, services int) func() (bool, string) {
		return func() (bool, string) {
			p, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
			r.check(err)
			s, err := kube.CoreV1().Services(r.ns).List(r.ctx, metav1.ListOptions{})
			r.check(err)
			n := 0
			for i := range p.Items {
				if isReady(&p.Items[i]) {
					n++
				}
			}
			return n == pods && len(p.Items) == pods && len(s.Items) == services, fmt.Sprintf("%d of %d pods are ready, %d services", n, len(p.Items), len(s.Items))
		}
	}
	r.await("two brokers and three Services", made(2, 3))
	var files []string
	for _, node := range shared.Nodes() {
		file := filepath.Join(node.KubecriDir, "debug-echo-availability.txt")
		r.check(writeFile(file, "OFFLINE\n"))
		r.Cleanup(func() { os.Remove(file) })
		files = append(files, file)
	}
	r.await("neither broker nor Service", made(0, 0))
	for _, file := range files {
		r.check(os.Remove(file))
	}
	r.await("two brokers and three Services again", made(2, 3))
}

// A Job is run once for a spec, also when its time to live has removed it, and again
// for another.
func TestBrokerJobs(t *testing.T) {
	testAll(t, "restarts the controller")
	r := newRig(t)
	ttl := int32(0)
	job := func(arg string) akriv0.BrokerSpec {
		return akriv0.BrokerSpec{BrokerJobSpec: raw(r, batchv1.JobSpec{TTLSecondsAfterFinished: &ttl, Template: v1.PodTemplateSpec{Spec: *brokerPod(func(p *v1.PodSpec) { p.RestartPolicy = v1.RestartPolicyNever }, "sleep", arg)}})}
	}
	jobs, err := kube.BatchV1().Jobs(r.ns).Watch(r.ctx, metav1.ListOptions{})
	r.check(err)
	defer jobs.Stop()
	// A pod that is no broker has LEVEL, too.
	prefixes := func(c *akriv0.ConfigurationSpec) { c.PropertyPrefixes = []string{"DEBUG_ECHO_", "LEVEL"} }
	r.brokers("job", 2, job("100ms"), prefixes, "job0")
	instance := r.awaitDevices("job", 1)[0].name
	event := func(kind string) *batchv1.Job {
		r.Helper()
		for {
			select {
			case e := <-jobs.ResultChan():
				if j, ok := e.Object.(*batchv1.Job); ok && string(e.Type) == kind {
					return j
				}
			case <-time.After(patience):
				t.Fatalf("waited %s for a Job to be %s", patience, kind)
			}
		}
	}
	if j := event("ADDED"); j.Name != instance+"-1-job" || j.Spec.Template.Labels["akri.sh/instance"] != instance || j.Spec.Template.Labels["controller"] != "akri.sh" {
		t.Errorf("the first Job: %s, %v", j.Name, j.Spec.Template.Labels)
	}
	if j := event("DELETED"); j.Status.Succeeded != 1 {
		t.Errorf("the first Job went with %+v", j.Status)
	}
	r.await("the status to count it", func() (bool, string) {
		s := r.status("job")
		return countsBrokers(s, 1, 1), fmt.Sprintf("%+v", s)
	})
	// What made Akri run it again: a claim, another capacity, a restart.
	r.create(newPod("user", nodeA, map[string]int64{instance: 1}))
	r.agree("user", "job", 1)
	r.patchConfiguration("job", `{"spec":{"capacity":3}}`)
	r.check(shared.Restart(cluster.Controller, ""))
	r.awaitView("job")
	spec, err := json.Marshal(map[string]any{"spec": map[string]any{"brokerSpec": job("200ms")}})
	r.check(err)
	r.patchConfiguration("job", string(spec))
	if j := event("ADDED"); j.Name != instance+"-3-job" {
		t.Errorf("after the first comes %s, which is of no other spec", j.Name)
	}
	r.delete("user")
}
