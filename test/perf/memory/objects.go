package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/akri/client/clientset/versioned"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	kind             = "cam"
	namespace        = metav1.NamespaceDefault
	slotsPerInstance = 2
	writers          = 16 // objects that are created at the same time
)

// size is what both clusters hold.
type size struct{ nodes, slots, pods int }

func (s size) validate() error {
	if s.nodes < 1 || s.slots < slotsPerInstance || s.slots%slotsPerInstance != 0 || s.pods < 1 || s.pods > s.nodes*s.slots {
		return fmt.Errorf("%d nodes with %d slots each for %d pods: want an even number of slots for each node, and as many in all as pods", s.nodes, s.slots, s.pods)
	}
	return nil
}

// arm is a cluster whose scheduler is measured.
type arm struct {
	size
	name     string
	ours     bool
	profiles string
	cluster  *cluster.Cluster
	program  string // the scheduler's file
	client   *kubernetes.Clientset

	scheduled memory   // after it has bound all pods
	rounds    []memory // started again
}

func (a *arm) resource() v1.ResourceName {
	if a.ours {
		return assignment.ResourcePrefix + kind
	}
	return "example.com/" + kind
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// prepare creates all objects, and has the scheduler bind the pods.
func (a *arm) prepare(ctx context.Context) error {
	config, err := a.cluster.RESTConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	core := rest.CopyConfig(config)
	core.ContentType = "application/vnd.kubernetes.protobuf"
	if a.client, err = kubernetes.NewForConfig(core); err != nil {
		return err
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := a.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := create(ctx, a.nodes, a.createNode); err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	if a.ours {
		if err := a.createInstances(ctx, config); err != nil {
			return fmt.Errorf("create Instances: %w", err)
		}
	}
	if err := create(ctx, a.pods, a.createPod); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	progress("%s: %d nodes and %d pods are created", a.name, a.nodes, a.pods)
	return a.bindAll(ctx)
}

// create calls one for 0 to n-1, several at a time.
func create(ctx context.Context, n int, one func(context.Context, int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(ctx, writers, n, func(i int) { errs[i] = one(ctx, i) })
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("object %d of %d: %w", i+1, n, err)
		}
	}
	return ctx.Err()
}

func (a *arm) createNode(ctx context.Context, i int) error {
	capacity := v1.ResourceList{
		v1.ResourcePods:   resource.MustParse("110"),
		v1.ResourceCPU:    resource.MustParse("32"),
		v1.ResourceMemory: resource.MustParse("256Gi"),
		a.resource():      *resource.NewQuantity(int64(a.slots), resource.DecimalSI),
	}
	if a.ours {
		for _, in := range a.instancesOf(i) {
			capacity[v1.ResourceName(assignment.ResourcePrefix+in.Name)] = *resource.NewQuantity(int64(in.Spec.Capacity), resource.DecimalSI)
		}
	}
	nodes := a.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{v1.LabelHostname: nodeName(i)}},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = nil // admission has added that it is not ready
	_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// instancesOf are the Instances of the i-th node, with what a discovered device
// has in them.
func (a *arm) instancesOf(i int) []*akriv0.Instance {
	var of []*akriv0.Instance
	perNode := a.slots / slotsPerInstance
	for n := i * perNode; n < (i+1)*perNode; n++ {
		hash := fmt.Sprintf("%06x", n)
		in := &akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Name: kind + "-" + hash},
			Spec: akriv0.InstanceSpec{
				ConfigurationName: kind, Capacity: slotsPerInstance, Nodes: []string{nodeName(i)},
				CDIName:          "akri.sh/" + kind + "=" + hash,
				BrokerProperties: map[string]string{"MODEL": "A100", "FAMILY": "GPU", "DRIVER_VERSION": "1.2.3"},
				DeviceUsage:      map[string]string{},
			},
		}
		for index := range slotsPerInstance {
			in.Spec.DeviceUsage[slot.Name{Instance: in.Name, Index: index}.String()] = ""
		}
		of = append(of, in)
	}
	return of
}

func (a *arm) createInstances(ctx context.Context, config *rest.Config) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := client.AkriV0().Configurations(namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: kind},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"}, Capacity: slotsPerInstance},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return create(ctx, a.nodes, func(ctx context.Context, i int) error {
		for _, in := range a.instancesOf(i) {
			if _, err := client.AkriV0().Instances(namespace).Create(ctx, in, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *arm) createPod(ctx context.Context, i int) error {
	amount := v1.ResourceList{a.resource(): resource.MustParse("1")}
	_, err := a.client.CoreV1().Pods(namespace).Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10.1",
			Resources: v1.ResourceRequirements{Requests: amount, Limits: amount}}}},
	}, metav1.CreateOptions{})
	return err
}

// checkBound says which of the pods are not bound, or in our arm have no assignment.
func (a *arm) checkBound(ctx context.Context) error {
	pods, err := a.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String()})
	if err != nil {
		return err
	}
	var errs []error
	if len(pods.Items) != a.pods {
		errs = append(errs, fmt.Errorf("%d of %d pods are bound", len(pods.Items), a.pods))
	}
	holders := map[slot.Name]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !a.ours {
			continue
		}
		info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
		if err != nil || info == nil {
			errs = append(errs, fmt.Errorf("pod %s has no assignment, error %v", pod.Name, err))
			continue
		}
		container := info.RunningContainers["main"]
		grants, err := assignment.Grants(&container)
		if err != nil || len(grants) != 1 || holders[grants[0].Slot] != "" {
			errs = append(errs, fmt.Errorf("pod %s: want one slot that no other pod has, got %v, error %v", pod.Name, grants, err))
			continue
		}
		holders[grants[0].Slot] = pod.Name
	}
	return errors.Join(errs...)
}

var begin = time.Now()
