package scheduler

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	crds      = "../../../deploy/crds"
	namespace = metav1.NamespaceDefault // of our Configuration
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

// createSlices makes the Configurations, and what its nodes report. It returns the
// slice that it creates after all others.
func (r run) createSlices(tCtx ktesting.TContext, reach []v1.Node) (last *v1alpha1.DeviceSlice, err error) {
	client, err := ourClient(tCtx)
	if err != nil {
		return nil, err
	}
	_, capacity := r.instances()
	for _, kind := range r.kinds() {
		if _, err := client.AkriV0().Configurations(namespace).Create(tCtx, &akriv0.Configuration{
			ObjectMeta: metav1.ObjectMeta{Name: kind},
			Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"},
				Capacity: int32(capacity), InstanceNameDigits: slot.LongHash, Allocator: r.allocator()},
		}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	all := r.deviceSlices(reach)
	createOne := func(s *v1alpha1.DeviceSlice) error {
		_, err := client.KubeslotV1alpha1().DeviceSlices().Create(tCtx, s, metav1.CreateOptions{})
		return err
	}
	if err := create(len(all)-1, func(i int) error { return createOne(all[i]) }); err != nil {
		return nil, err
	}
	last = all[len(all)-1]
	return last, createOne(last)
}

// deviceSlices are what the nodes report, in their order: of shared devices each node
// all, else each node its own.
func (r run) deviceSlices(reach []v1.Node) []*v1alpha1.DeviceSlice {
	var all []*v1alpha1.DeviceSlice
	n, _ := r.instances()
	var devices []v1alpha1.Device
	for i := range reach {
		node := &reach[i]
		switch {
		case !r.shared:
			devices = r.devices(i*n/len(reach), (i+1)*n/len(reach), node.Name)
		case i == 0:
			devices = r.devices(0, n, "")
		}
		for part := range slices.Chunk(devices, v1alpha1.MaxDevices) {
			all = append(all, &v1alpha1.DeviceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node.Name, len(all)),
					OwnerReferences: []metav1.OwnerReference{v1alpha1.NodeOwner(node.Name, node.UID)}},
				Spec: v1alpha1.DeviceSliceSpec{NodeName: node.Name, Devices: part},
			})
		}
	}
	return all
}

// devices are those of each kind from first to before last of the run's, as a node reports them.
// Their Instances' names have twelve digits: of 25,000 with six, some would meet.
func (r run) devices(first, last int, node string) []v1alpha1.Device {
	properties := map[string]string{"MODEL": "A100", "FAMILY": "GPU", "DRIVER_VERSION": "1.2.3"}
	var devices []v1alpha1.Device
	for _, kind := range r.kinds() {
		for n := first; n < last; n++ {
			id := fmt.Sprintf("device-%d", n)
			devices = append(devices, v1alpha1.Device{
				Configuration: v1alpha1.ConfigurationReference{Namespace: namespace, Name: kind},
				ID:            id, Hash: slot.InstanceHash(id, r.shared, node, slot.LongHash), Shared: r.shared,
				Properties: properties,
			})
		}
	}
	return devices
}

// advertise puts the slots into the nodes' status, as kubecri does.
func (r run) advertise(tCtx ktesting.TContext, reach []v1.Node) error {
	n, capacity := r.instances()
	if !r.shared {
		n /= len(reach)
	}
	slots := v1.ResourceList{}
	for _, kind := range r.kinds() {
		maps.Copy(slots, r.amount(kind, n*capacity))
	}
	return create(len(reach), func(i int) error {
		node := reach[i].DeepCopy()
		maps.Copy(node.Status.Capacity, slots)
		maps.Copy(node.Status.Allocatable, slots)
		_, err := tCtx.Client().CoreV1().Nodes().UpdateStatus(tCtx, node, metav1.UpdateOptions{})
		return err
	})
}

// waitForSlots waits until the scheduler gives out a slot of what was reported last,
// and so has seen all else: it schedules a pod onto that node and device, and removes
// the pod and its claims again.
func waitForSlots(tCtx ktesting.TContext, last v1alpha1.DeviceSliceSpec) error {
	instance := last.Devices[len(last.Devices)-1].Instance()
	probe := arm{prefix: assignment.ResourcePrefix}.pod(1, instance)
	probe.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{last.NodeName}}}}}}}}
	pods := tCtx.Client().CoreV1().Pods(namespace)
	probe, err := pods.Create(tCtx, probe, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := poll(tCtx, func(ctx context.Context) (bool, error) {
		live, err := pods.Get(ctx, probe.Name, metav1.GetOptions{})
		return err == nil && live.Spec.NodeName != "", err
	}); err != nil {
		return fmt.Errorf("wait until the scheduler knows Instance %s on node %s: %w", instance, last.NodeName, err)
	}
	now := int64(0)
	if err := pods.Delete(tCtx, probe.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	client, err := ourClient(tCtx)
	if err != nil {
		return err
	}
	return client.KubeslotV1alpha1().SlotClaims().DeleteCollection(tCtx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func ourClient(tCtx ktesting.TContext) (versioned.Interface, error) {
	config := restclient.CopyConfig(tCtx.RESTConfig())
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	return versioned.NewForConfig(config)
}
