package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/slot"
)

// deviceConfiguration is the Configuration of the one device that containers get.
const deviceConfiguration = "bench-cri"

// deviceBench creates containers of a pod that has a slot: kubecri reads the pod's
// assignment, claims the slot, and injects the device. The other way is an equal
// container of a pod without devices, straight to containerd.
type deviceBench struct {
	cluster *cluster.Cluster
	node    string
	kube    kubernetes.Interface
	akri    versioned.Interface
	dir     string // of the keys
}

func newDeviceBench(c *cluster.Cluster, node string) (*deviceBench, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	b := &deviceBench{cluster: c, node: node}
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	b.akri, err = versioned.NewForConfig(config)
	return b, err
}

// run measures with assignments that kubecri believes as they are, and with signed ones.
func (d *deviceBench) run(ctx context.Context, b *bench) (err error) {
	const name = "Create, Remove with a device"
	if !b.only.MatchString(name) && !b.only.MatchString(name+", signed") {
		return nil
	}
	if d.dir, err = os.MkdirTemp("", "bench-cri-keys-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.remove(context.WithoutCancel(ctx))) }()
	signer, public, err := d.key()
	if err != nil {
		return err
	}
	pod, err := d.assigned(ctx, signer)
	if err != nil {
		return err
	}
	create, remove, err := d.creating(ctx, b, pod)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if err := b.measure(ctx, operation{name, 20, 1, create}); err != nil {
		return err
	}
	if err := d.restart(ctx, b, "--assignment-public-keys-file="+public); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.restart(context.WithoutCancel(ctx), b)) }()
	return b.measure(ctx, operation{name + ", signed", 20, 1, create})
}

// creating returns what creates and removes a container: of the pod through kubecri, of one without
// devices straight.
func (d *deviceBench) creating(ctx context.Context, b *bench, pod *corev1.Pod) (
	create func(context.Context, way) error, remove func(context.Context) error, err error) {
	plain, err := newSandbox(ctx, b.ways[0], "bench-cri-plain", "bench-cri-plain", nil)
	if err != nil {
		return nil, nil, err
	}
	// The kubelet gives the pod's annotations to its sandbox.
	box, err := newSandbox(ctx, b.ways[1], pod.Name, string(pod.UID), pod.Annotations)
	if err != nil {
		return nil, nil, errors.Join(err, plain.remove(context.WithoutCancel(ctx)))
	}
	create = func(ctx context.Context, w way) error {
		if w.name == box.way.name {
			return box.createAndRemove(ctx)
		}
		return plain.createAndRemove(ctx)
	}
	return create, func(ctx context.Context) error { return errors.Join(box.remove(ctx), plain.remove(ctx)) }, nil
}

// restart starts the node's kubecri anew, with these arguments more.
func (d *deviceBench) restart(ctx context.Context, b *bench, args ...string) error {
	if err := d.cluster.SetKubecriArgs(ctx, d.node, args...); err != nil {
		return err
	}
	pid, err := d.cluster.PID(cluster.Kubecri, d.node)
	b.kubecri.pid = pid
	return err
}

// key makes a scheduler's key, and returns the file of its public half.
func (d *deviceBench) key() (signer *signing.Signer, public string, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	private, public := filepath.Join(d.dir, "private.pem"), filepath.Join(d.dir, "public.pem")
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return nil, "", err
	}
	if der, err = x509.MarshalPKIXPublicKey(pub); err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		return nil, "", err
	}
	signer, err = signing.NewSigner(private)
	return signer, public, err
}

// assigned makes the device, and a pod on the node that has its slot, as the scheduler
// binds it.
func (d *deviceBench) assigned(ctx context.Context, signer *signing.Signer) (*corev1.Pod, error) {
	_, err := d.akri.AkriV0().Configurations(metav1.NamespaceDefault).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: deviceConfiguration},
		Spec: akriv0.ConfigurationSpec{Capacity: 1, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{
			Name: "debugEcho", DiscoveryDetails: `{"descriptions":["bench0"]}`}}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	instance := ""
	err = poll(ctx, "the device to be an Instance", func() (bool, error) {
		list, err := d.akri.AkriV0().Instances(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false, err
		}
		instance = list.Items[0].Name
		return true, nil
	})
	if err != nil {
		return nil, err
	}

	var container types.ContainerInfo
	assignment.Set(&container, []assignment.Grant{{Resource: deviceConfiguration, Slot: slot.Name{Instance: instance}}})
	return d.bind(ctx, "bench-device", assignment.ResourcePrefix+deviceConfiguration, container, signer)
}

// bind makes a pod on the node whose container requests one of the resource, as the scheduler binds it.
func (d *deviceBench) bind(ctx context.Context, name string, of corev1.ResourceName, container types.ContainerInfo,
	signer *signing.Signer) (*corev1.Pod, error) {
	request := corev1.ResourceList{of: resource.MustParse("1")}
	no := false
	pods := d.kube.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		SchedulerName: "bench-cri", AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Requests: request, Limits: request}}}}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	notes, err := assignment.Encode(&types.PodInfo{Name: name, NodeName: d.node,
		RunningContainers: map[string]types.ContainerInfo{"main": container}}, string(pod.UID), nil)
	if err != nil {
		return nil, err
	}
	if signer != nil {
		signer.Sign(notes, string(pod.UID), d.node)
	}
	err = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, UID: pod.UID, Annotations: notes},
		Target: corev1.ObjectReference{Kind: "Node", Name: d.node}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("bind pod %s: %w", name, err)
	}
	return pods.Get(ctx, name, metav1.GetOptions{})
}

func (d *deviceBench) removePods(ctx context.Context) error {
	now := int64(0)
	return d.kube.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
}

// remove takes away the pod, the device and the keys.
func (d *deviceBench) remove(ctx context.Context) error {
	return errors.Join(
		d.removePods(ctx),
		d.akri.AkriV0().Configurations(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		os.RemoveAll(d.dir))
}

// createAndRemove makes a container, as the kubelet does for the pod's container "main".
func (s *sandbox) createAndRemove(ctx context.Context) error {
	request := s.container()
	request.Config.Metadata.Name = "main"
	request.Config.Metadata.Attempt = uint32(s.made)
	request.Config.Labels["io.kubernetes.container.name"] = "main"
	created, err := s.way.rpc.CreateContainer(ctx, request)
	if err != nil {
		return err
	}
	_, err = s.way.rpc.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: created.ContainerId})
	return err
}
