package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	discoveryv0 "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// oneBroker waits for the one broker that runs, which is not the pod with the UID.
func (r *rig) oneBroker(not types.UID) (broker v1.Pod) {
	r.Helper()
	r.await("another broker to be ready, alone", func() (bool, string) {
		list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "controller=akri.sh"})
		r.check(err)
		seen := ""
		for _, p := range list.Items {
			seen += fmt.Sprintf("%s %s ready=%v; ", p.Name, p.UID, isReady(&p))
			broker = p
		}
		return len(list.Items) == 1 && broker.UID != not && isReady(&broker), seen
	})
	return broker
}

// What a device says of itself changes: its broker is made anew and sees it.
func TestBrokersFollowTheirDevicesProperties(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.newForeign("lamps")
	spec := r.podBroker(brokerPod(nil))
	r.brokers("lamp", 1, spec, func(c *akriv0.ConfigurationSpec) {
		c.DiscoveryHandler, c.PropertyPrefixes = akriv0.DiscoveryHandlerInfo{Name: "lamps"}, []string{"WATTS", "LEVEL"}
	})
	report := func(watts string) {
		f.say <- &discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: "desk", Properties: map[string]string{"WATTS": watts}}}}
	}
	report("5")
	first := r.oneBroker("")
	if got := r.env(first.Name)["WATTS"]; got != "5" {
		t.Errorf("the broker sees WATTS=%q, want 5", got)
	}
	report("7")
	if got := r.env(r.oneBroker(first.UID).Name)["WATTS"]; got != "7" {
		t.Errorf("the broker's successor sees WATTS=%q, want 7", got)
	}
}

// A Job of a spec that has changed finishes, and goes; that of the new spec stays.
func TestJobsOfAnOldSpec(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	job := func(arg string) akriv0.BrokerSpec {
		return akriv0.BrokerSpec{BrokerJobSpec: raw(r, batchv1.JobSpec{Template: v1.PodTemplateSpec{
			Spec: *brokerPod(func(p *v1.PodSpec) { p.RestartPolicy = v1.RestartPolicyNever }, "sleep", arg)}})}
	}
	r.brokers("once", 2, job("8s"), nil, "once0")
	instance := r.awaitDevices("once", 1)[0].name
	old, next := instance+"-1-job", instance+"-2-job"
	jobs, err := kube.BatchV1().Jobs(r.ns).Watch(r.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + old})
	r.check(err)
	defer jobs.Stop()
	r.await("the first Job's pod to run", func() (bool, string) {
		list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "job-name=" + old})
		r.check(err)
		if len(list.Items) != 1 {
			return false, fmt.Sprintf("%d pods", len(list.Items))
		}
		return list.Items[0].Status.Phase == v1.PodRunning, string(list.Items[0].Status.Phase)
	})
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"brokerSpec": job("100ms")}})
	r.check(err)
	r.patchConfiguration("once", string(patch))
	r.await("the Job of the new spec to complete", func() (bool, string) {
		j, err := kube.BatchV1().Jobs(r.ns).Get(r.ctx, next, metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 1, fmt.Sprint(err)
	})
	for gone := false; !gone; {
		select {
		case e := <-jobs.ResultChan():
			j, ok := e.Object.(*batchv1.Job)
			if gone = ok && e.Type == watch.Deleted; gone && j.Status.Succeeded != 1 {
				t.Errorf("the old Job went without having finished: %+v", j.Status)
			}
		case <-time.After(patience):
			t.Fatalf("waited %s for Job %s to be gone", patience, old)
		}
	}
	if _, err := kube.BatchV1().Jobs(r.ns).Get(r.ctx, next, metav1.GetOptions{}); err != nil {
		t.Errorf("the new spec's Job: %v", err)
	}
}

// A Service that is applied anew keeps what clients know it by.
func TestNodePortsOfServicesStay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.brokers("ported", 1, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.InstanceServiceSpec = &runtime.RawExtension{Raw: []byte(`{"type":"NodePort","ports":[{"name":"grpc","port":80,"targetPort":8083}]}`)}
	}, "ported0")
	name := r.awaitDevices("ported", 1)[0].name + "-svc"
	var before, after *v1.Service
	r.await("Service "+name, func() (bool, string) {
		var err error
		before, err = kube.CoreV1().Services(r.ns).Get(r.ctx, name, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	r.patchConfiguration("ported", `{"spec":{"instanceServiceSpec":{"ports":[{"name":"grpc","port":81,"targetPort":8083},{"name":"http","port":8080,"targetPort":8080}]}}}`)
	r.await("the Service to have the other ports", func() (bool, string) {
		var err error
		after, err = kube.CoreV1().Services(r.ns).Get(r.ctx, name, metav1.GetOptions{})
		r.check(err)
		return len(after.Spec.Ports) == 2 && after.Spec.Ports[0].Port == 81, fmt.Sprintf("%+v", after.Spec.Ports)
	})
	if a, b := before.Spec.Ports[0].NodePort, after.Spec.Ports[0].NodePort; a == 0 || a != b {
		t.Errorf("node port %d has become %d", a, b)
	}
	if after.Spec.ClusterIP != before.Spec.ClusterIP || after.UID != before.UID {
		t.Errorf("cluster IP %s of %s has become %s of %s", before.Spec.ClusterIP, before.UID, after.Spec.ClusterIP, after.UID)
	}
}
