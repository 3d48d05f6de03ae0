package intercept

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
)

// A pod with users of its own (hostUsers: false) gets mounts with the mappings
// that the kubelet gives its volumes. CDI has none, so what has mounts is not given
// by CDI name.
func TestMountsOfUserNamespacedPods(t *testing.T) {
	uids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
	gids := []*runtimeapi.IDMapping{{HostId: 131072, Length: 65536}}
	own := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: uids, Gids: gids}
	mount := discovery.Device{Mounts: []discovery.Mount{{ContainerPath: "/data", HostPath: "/srv", ReadOnly: true}},
		DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "r"}}}
	nodes := []*runtimeapi.Device{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "r"}}
	byName := []*runtimeapi.CDIDevice{{Name: "akri.sh/cam-a1"}}
	for _, test := range []struct {
		name   string
		users  *runtimeapi.UserNamespace
		device discovery.Device
		want   *runtimeapi.ContainerConfig
	}{
		{"own users and a mount", own, mount, &runtimeapi.ContainerConfig{Devices: nodes,
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv", Readonly: true, UidMappings: uids, GidMappings: gids}}}},
		{"own users and no mount", own, discovery.Device{DeviceSpecs: mount.DeviceSpecs}, &runtimeapi.ContainerConfig{CDIDevices: byName}},
		{"the node's users", &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, mount, &runtimeapi.ContainerConfig{CDIDevices: byName}},
		{"a kubelet that knows of none", nil, mount, &runtimeapi.ContainerConfig{CDIDevices: byName}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, r := newFlow(t, func(context.Context, string) (discovery.Device, error) { return test.device, nil }), &runtime{}
			sandbox := &runtimeapi.PodSandboxConfig{Annotations: admittest.Assigned(admittest.Good),
				Metadata: &runtimeapi.PodSandboxMetadata{Namespace: admittest.Pod.Namespace, Name: admittest.Pod.Name, Uid: admittest.Pod.UID},
				Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: test.users}}}}
			request, err := proto.Marshal(&runtimeapi.CreateContainerRequest{SandboxConfig: sandbox,
				Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.calls[runtimeapi.RuntimeService_CreateContainer_FullMethodName](t.Context(), request, r.forward(request)); err != nil {
				t.Fatal(err)
			}
			got := &runtimeapi.CreateContainerRequest{}
			if err := proto.Unmarshal(r.forwarded, got); err != nil {
				t.Fatal(err)
			}
			brought := &runtimeapi.ContainerConfig{Mounts: got.Config.Mounts, Devices: got.Config.Devices, CDIDevices: got.Config.CDIDevices}
			if diff := cmp.Diff(test.want, brought, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
