package main

import (
	"context"
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

func version(ctx context.Context, w way, text string) error {
	_, err := w.rpc.Version(ctx, &runtimeapi.VersionRequest{Version: text})
	return err
}

// largeRequest is a version for a request of 12 MiB; the runtime does not mind it.
func largeRequest() string { return strings.Repeat("v", 12<<20) }

func execSync(ctx context.Context, w way, container string) error {
	r, err := w.rpc.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: []string{"/app", "env"}, Timeout: 10})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
	}
	return err
}

func list(ctx context.Context, w way, atLeast int) error {
	r, err := w.rpc.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err == nil && len(r.Containers) < atLeast {
		err = fmt.Errorf("%d containers, want %d", len(r.Containers), atLeast)
	}
	return err
}

// sandbox holds the containers of the benchmark.
type sandbox struct {
	way    way
	id     string
	config *runtimeapi.PodSandboxConfig
	made   int
}

// newSandbox makes a pod's. It uses the node's network, so that no CNI plugin is in the numbers.
func newSandbox(ctx context.Context, w way, name, uid string, annotations map[string]string) (*sandbox, error) {
	s := &sandbox{way: w, config: &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Uid: uid, Namespace: "default"},
		Annotations: annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}},
	}}
	r, err := w.rpc.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: s.config})
	if err != nil {
		return nil, err
	}
	s.id = r.PodSandboxId
	return s, nil
}

// container is a request with the labels and annotations of a kubelet's.
func (s *sandbox) container() *runtimeapi.CreateContainerRequest {
	s.made++
	name := fmt.Sprintf("c%d", s.made)
	return &runtimeapi.CreateContainerRequest{PodSandboxId: s.id, SandboxConfig: s.config, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: cluster.AppImage},
		Labels: map[string]string{"io.kubernetes.container.name": name, "io.kubernetes.pod.name": s.config.Metadata.Name,
			"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": s.config.Metadata.Uid},
		Annotations: map[string]string{"io.kubernetes.container.hash": "30af6e28", "io.kubernetes.container.restartCount": "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File", "io.kubernetes.pod.terminationGracePeriod": "30"},
		Linux: &runtimeapi.LinuxContainerConfig{},
	}}
}

// start runs a container.
func (s *sandbox) start(ctx context.Context, w way) (id string, err error) {
	created, err := w.rpc.CreateContainer(ctx, s.container())
	if err != nil {
		return "", err
	}
	_, err = w.rpc.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	return created.ContainerId, err
}

// cycle is a container's whole life.
func (s *sandbox) cycle(ctx context.Context, w way) error {
	id, err := s.start(ctx, w)
	if err != nil {
		return err
	}
	if _, err := w.rpc.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 5}); err != nil {
		return err
	}
	_, err = w.rpc.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// fill creates containers, not started, until the runtime has n.
func (s *sandbox) fill(ctx context.Context, w way, n int) error {
	r, err := w.rpc.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	for have := len(r.Containers); have < n; have++ {
		if _, err := w.rpc.CreateContainer(ctx, s.container()); err != nil {
			return fmt.Errorf("create container %d of %d: %w", have+1, n, err)
		}
	}
	return nil
}

func (s *sandbox) remove(ctx context.Context) error {
	if _, err := s.way.rpc.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.id}); err != nil {
		return err
	}
	_, err := s.way.rpc.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.id})
	return err
}
