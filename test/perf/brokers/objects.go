package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	namespace     = metav1.NamespaceDefault
	configuration = "cameras"
	// What devices are named, and the property that they have.
	devicePrefix, urlProperty = "camera-", "CAMERA_URL"
	// perSlice is the most devices that a DeviceSlice may have.
	perSlice = 256
)

// arm is a kind of devices, and of how many brokers each has.
type arm struct {
	name     string
	shared   bool
	capacity int32
}

// brokers is how many there are in all.
func (a arm) brokers(instances int) int { return instances * int(a.capacity) }

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// parallel calls one for 0 to n-1, several at a time.
func parallel(ctx context.Context, n int, one func(i int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(ctx, 16, n, func(i int) { errs[i] = one(i) })
	return errors.Join(append(errs, ctx.Err())...)
}

// createNodes makes the nodes with their slices. Local devices are spread evenly, shared
// ones are reported by every node.
func (b *bench) createNodes(ctx context.Context) error {
	// No controller manager makes it here, and no pod can be created without.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := b.kube.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	return parallel(ctx, b.options.nodes, func(i int) error {
		name := nodeName(i)
		amounts := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("500"), corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi")}
		node, err := b.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = nil // admission has added that it is not ready
		if node, err = b.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		devices := b.devicesOf(i)
		for first := 0; first < len(devices); first += perSlice {
			_, err := b.akri.KubeslotV1alpha1().DeviceSlices().Create(ctx, &v1alpha1.DeviceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, first/perSlice), OwnerReferences: []metav1.OwnerReference{v1alpha1.NodeOwner(name, node.UID)}},
				Spec:       v1alpha1.DeviceSliceSpec{NodeName: name, Devices: devices[first:min(first+perSlice, len(devices))]},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// devicesOf are those that a node reports.
func (b *bench) devicesOf(node int) []v1alpha1.Device {
	n := b.instances
	if !b.arm.shared {
		n /= b.options.nodes
	}
	devices := make([]v1alpha1.Device, n)
	for i := range devices {
		id := fmt.Sprint(devicePrefix, i)
		devices[i] = v1alpha1.Device{
			Configuration: v1alpha1.ConfigurationReference{Namespace: namespace, Name: configuration},
			ID:            id, Shared: b.arm.shared, Properties: map[string]string{urlProperty: "http://10.0.0.1/" + id},
			Hash: slot.InstanceHash(id, b.arm.shared, nodeName(node), slot.LongHash),
		}
	}
	return devices
}

// deviceNumber is that of a device's id.
func deviceNumber(id string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(id, devicePrefix))
	if err != nil {
		panic(err) // devicesOf has named it
	}
	return n
}

// podSpec is the brokers', of an image.
func podSpec(image string) []byte {
	return []byte(`{"containers":[{"name":"broker","image":"` + image + `","args":["--name={{INSTANCE}}","--url={{property:` + urlProperty + `}}"],` +
		`"resources":{"limits":{"{{PLACEHOLDER}}":"1"}}}]}`)
}

// theConfiguration asks for brokers and for both kinds of Services.
func (b *bench) theConfiguration() *akriv0.Configuration {
	all := min(b.arm.brokers(b.instances), 10_000) // on one node; the most that perNode may be
	// With an address of the cluster's, the API server counts all that it has given, twice a Service:
	// 60 ms at 15,000 (ipallocator.Used, Kubernetes 1.37), which is not what is measured here.
	service := &runtime.RawExtension{Raw: []byte(`{"clusterIP":"None","ports":[{"name":"grpc","port":80,"targetPort":8083}]}`)}
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configuration},
		Spec: akriv0.ConfigurationSpec{
			MaxInstances: int32(b.instances),
			BrokerLimits: &akriv0.BrokerLimits{PerNode: int32(all), Total: int32(b.arm.brokers(b.instances))},
			DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho",
				DiscoveryDetails: "descriptions: [camera]"},
			Capacity: b.arm.capacity, InstanceNameDigits: int32(slot.LongHash),
			BrokerSpec:          &akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: podSpec(images[0])}},
			InstanceServiceSpec: service, ConfigurationServiceSpec: service,
		},
	}
}
