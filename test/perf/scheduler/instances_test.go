package scheduler

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubernetes/test/utils/ktesting"
	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	crds      = "../../../deploy/crds"
	namespace = metav1.NamespaceDefault // of our Configuration and its Instances
)

func installCRDs(ctx context.Context, config *restclient.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in %s: %w", crds, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		definitions := client.ApiextensionsV1().CustomResourceDefinitions()
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CRD %s: %w", crd.Name, err)
		}
		if err := poll(ctx, func(ctx context.Context) (bool, error) {
			live, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, c := range live.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		}); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// createInstances makes the Configuration and its Instances, all of them free.
func (r run) createInstances(tCtx ktesting.TContext, reach []string) error {
	client, err := akriClient(tCtx)
	if err != nil {
		return err
	}
	if _, err := client.AkriV0().Configurations(namespace).Create(tCtx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: kindName},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	createOne := func(in *akriv0.Instance) error {
		in, err := client.AkriV0().Instances(namespace).Create(tCtx, in, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		in.ManagedFields = []metav1.ManagedFieldsEntry{{}} // as kubecri does once it sees it
		_, err = client.AkriV0().Instances(namespace).Update(tCtx, in, metav1.UpdateOptions{})
		return err
	}
	n, _ := r.instances()
	if err := create(n-1, func(i int) error { return createOne(r.instance(i, reach)) }); err != nil {
		return err
	}
	return createOne(r.lastInstance(reach))
}

// advertise puts the slots into the nodes' status, as kubecri does.
func (r run) advertise(tCtx ktesting.TContext, nodes []v1.Node, reach []string) error {
	slots := map[string]v1.ResourceList{} // by node
	n, _ := r.instances()
	for i := range n {
		in := r.instance(i, reach)
		for _, node := range in.Spec.Nodes {
			if slots[node] == nil {
				slots[node] = v1.ResourceList{}
			}
			for _, name := range []string{in.Name, kindName} {
				key := v1.ResourceName(assignment.ResourcePrefix + name)
				sum := slots[node][key]
				sum.Add(*resource.NewQuantity(int64(in.Spec.Capacity), resource.DecimalSI))
				slots[node][key] = sum
			}
		}
	}
	return create(len(nodes), func(i int) error {
		node := nodes[i].DeepCopy()
		maps.Copy(node.Status.Capacity, slots[node.Name])
		maps.Copy(node.Status.Allocatable, slots[node.Name])
		_, err := tCtx.Client().CoreV1().Nodes().UpdateStatus(tCtx, node, metav1.UpdateOptions{})
		return err
	})
}

// lastInstance is created after all others have been.
func (r run) lastInstance(reach []string) *akriv0.Instance {
	n, _ := r.instances()
	return r.instance(n-1, reach)
}

// instance is the i-th of the run's Instances.
func (r run) instance(i int, reach []string) *akriv0.Instance {
	_, capacity := r.instances()
	in := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%06x", kindName, i)},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: kindName, Capacity: int32(capacity), Shared: r.shared, Nodes: reach,
			BrokerProperties: map[string]string{"MODEL": "A100", "FAMILY": "GPU", "DRIVER_VERSION": "1.2.3"},
			DeviceUsage:      make(map[string]string, capacity),
		},
	}
	if !r.shared {
		in.Spec.Nodes = reach[i%len(reach) : i%len(reach)+1]
	}
	for index := range capacity {
		in.Spec.DeviceUsage[slot.Name{Instance: in.Name, Index: index}.String()] = ""
	}
	return in
}

// waitForSlots waits until the scheduler gives out the slots of the Instance
// made last, and so has seen all others: it schedules a pod onto it, and removes
// the pod again.
func waitForSlots(tCtx ktesting.TContext, instance string) error {
	probe := arm{resource: v1.ResourceName(assignment.ResourcePrefix + instance)}.pod(1)
	pods := tCtx.Client().CoreV1().Pods(namespace)
	probe, err := pods.Create(tCtx, probe, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := poll(tCtx, func(ctx context.Context) (bool, error) {
		live, err := pods.Get(ctx, probe.Name, metav1.GetOptions{})
		return err == nil && live.Spec.NodeName != "", err
	}); err != nil {
		return fmt.Errorf("wait until the scheduler knows Instance %s: %w", instance, err)
	}
	now := int64(0)
	if err := pods.Delete(tCtx, probe.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	return release(tCtx, instance)
}

// release frees the Instance's slots, as the kubecri of a node does whose pod is gone.
func release(tCtx ktesting.TContext, instance string) error {
	client, err := akriClient(tCtx)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		in, err := client.AkriV0().Instances(namespace).Get(tCtx, instance, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for slot := range in.Spec.DeviceUsage {
			in.Spec.DeviceUsage[slot] = ""
		}
		_, err = client.AkriV0().Instances(namespace).Update(tCtx, in, metav1.UpdateOptions{})
		return err
	})
}

func akriClient(tCtx ktesting.TContext) (versioned.Interface, error) {
	config := restclient.CopyConfig(tCtx.RESTConfig())
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	return versioned.NewForConfig(config)
}
