package check

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// podResources is a kubelet's: pod ns/p has a device.
type podResources struct {
	podresourcesapi.PodResourcesListerClient
	down bool
}

func (p podResources) List(context.Context, *podresourcesapi.ListPodResourcesRequest, ...grpc.CallOption) (*podresourcesapi.ListPodResourcesResponse, error) {
	if p.down {
		return nil, errors.New("no such socket")
	}
	return &podresourcesapi.ListPodResourcesResponse{PodResources: []*podresourcesapi.PodResources{{Namespace: "ns", Name: "p", Containers: []*podresourcesapi.ContainerResources{
		{Name: "main", Devices: []*podresourcesapi.ContainerDevices{{ResourceName: "akri.sh/cam", DeviceIds: []string{"cam-0"}}, {ResourceName: "nvidia.com/gpu", DeviceIds: []string{"0"}}}}}}}}, nil
}

func TestDevicePluginMode(t *testing.T) {
	// A node where all is well: the kubelet, a plugin of kubecri, its label, and a pod.
	type state struct {
		kubelet, served, dead, down, label, claim, scope bool
		failed                                           bool
	}
	well := state{kubelet: true, served: true, label: true, claim: true}
	for _, test := range []struct {
		name   string
		change func(*state)
		well   bool
		says   []string
	}{
		{"well", func(*state) {}, true, []string{"ok    kubelet    takes device plugins at", "1 device plugins of kubecri are served", "tells the devices of pods at unix:///pods.sock",
			"ok    mode       node node-a has akri.sh/cam 1 of 2", "main has slot cam-8120fe-1 for akri.sh/cam, as device cam-0"}},
		{"no kubelet", func(s *state) { s.kubelet = false }, false, []string{"FAIL  kubelet    takes no device plugins", "--kubelet-device-plugin-dir"}},
		{"no plugins", func(s *state) { s.served = false }, true, []string{"note  kubelet    has no device plugins of kubecri"}},
		{"kubecri is away", func(s *state) { s.dead = true }, false, []string{"FAIL  kubelet    1 of 1 sockets of kubecri are not served"}},
		{"no pod-resources", func(s *state) { s.down = true }, false, []string{"FAIL  kubelet    does not tell", "unix:///pods.sock", "--kubelet-pod-resources-socket"}},
		{"no label", func(s *state) { s.label = false }, false, []string{"FAIL  mode       node node-a lacks the label kubeslot.io/mode=device-plugin"}},
		{"scope Pod", func(s *state) { s.scope = true }, true, []string{"note  mode       Configuration default/cam has uniqueScope Pod"}},
		{"a claim was deleted", func(s *state) { s.claim = false }, false, []string{"FAIL  container  main has device cam-0 of akri.sh/cam, of which this node has no SlotClaim"}},
		{"the pod has failed", func(s *state) { s.failed = true }, false, []string{"FAIL  pod        has failed: UnexpectedAdmissionError: Allocate failed due to slot cam-8120fe-0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			is := well
			test.change(&is)
			p := pod("node-a", "")
			if is.failed {
				p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to slot cam-8120fe-0"}
			}
			c, kube := setup(p, "")
			dir := t.TempDir()
			listen := func(name string, keep bool) {
				l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
				if err != nil {
					t.Fatal(err)
				}
				if keep {
					t.Cleanup(func() { l.Close() })
					return
				}
				l.SetUnlinkOnClose(false)
				l.Close()
			}
			if is.kubelet {
				listen("kubelet.sock", true)
			}
			if is.served {
				listen("kubeslot-cam.sock", !is.dead)
			}
			c.DevicePlugin = &DevicePlugin{Directory: dir, PodResources: podResources{down: is.down}, PodResourcesEndpoint: "unix:///pods.sock"}
			node := nodeA()
			if is.label {
				node.Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}
			}
			node.Status.Capacity = corev1.ResourceList{"akri.sh/cam": resource.MustParse("2")}
			node.Status.Allocatable = corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}
			if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
				t.Fatal(err)
			}
			if is.claim {
				claim := v1alpha1.NewSlotClaim(slot.Name{Instance: "cam-8120fe", Index: 1}, v1alpha1.SlotClaimSpec{NodeName: "node-a", Level: v1alpha1.ConfigurationLevel, Holder: "cam-0"}, v1alpha1.NodeOwner("node-a", ""))
				if err := c.Client.(*fake.Clientset).Tracker().Add(claim); err != nil {
					t.Fatal(err)
				}
			}
			if is.scope {
				cam, err := c.Client.AkriV0().Configurations("default").Get(t.Context(), "cam", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				cam.Spec.UniqueScope = v0.UniquePerPod
				if _, err := c.Client.AkriV0().Configurations("default").Update(t.Context(), cam, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			wantReport(t, c, test.well, test.says)
		})
	}
}
