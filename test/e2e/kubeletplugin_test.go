package e2e

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubeletPlugin is a device plugin of the kubelet that is none of ours, as a vendor's is. It
// has one device, <name>-0, and a container that gets it has a variable of its name in
// capitals.
type kubeletPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	variable, device string
}

func (*kubeletPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *kubeletPlugin) ListAndWatch(_ *pluginapi.Empty, s grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	if err := s.Send(&pluginapi.ListAndWatchResponse{Devices: []*pluginapi.Device{{ID: p.device, Health: pluginapi.Healthy}}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (p *kubeletPlugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{Envs: map[string]string{p.variable: p.device}})
	}
	return response, nil
}

// kubeletPlugin serves a plugin on node-a until the test ends, and returns its resource.
func (r *rig) kubeletPlugin(name string) v1.ResourceName {
	r.Helper()
	directory := filepath.Join(theNode().KubeletDir, "device-plugins")
	socket := filepath.Join(directory, name+".sock")
	l, err := net.Listen("unix", socket)
	r.check(err)
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, &kubeletPlugin{variable: strings.ToUpper(name), device: name + "-0"})
	go func() { _ = server.Serve(l) }()
	r.Cleanup(server.Stop) // which removes the socket
	conn, err := grpc.NewClient("unix://"+filepath.Join(directory, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	resource := "kubeslot.test/" + name
	_, err = pluginapi.NewRegistrationClient(conn).Register(r.ctx, &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: filepath.Base(socket), ResourceName: resource},
		grpc.WaitForReady(true))
	r.check(err)
	return v1.ResourceName(resource)
}

// awaitAllocatable waits until the node has the amount of the resource.
func (r *rig) awaitAllocatable(node string, resource v1.ResourceName, amount int64) {
	r.Helper()
	r.await(fmt.Sprintf("%s to have %d of %s", node, amount, resource), func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		q := n.Status.Allocatable[resource]
		return q.Value() == amount, fmt.Sprint(n.Status.Allocatable)
	})
}
