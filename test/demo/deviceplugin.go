package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// inMode makes the cluster one of MODE: none, or device-plugin, where nodes give out slots
// by device plugins of their kubelets, under the upstream scheduler.
func inMode(cfg cluster.Config) (cluster.Config, error) {
	switch mode := os.Getenv("MODE"); mode {
	case "":
	case "device-plugin":
		cfg.DevicePlugin, cfg.StockScheduler = cluster.DefaultNodes, true
	default:
		return cfg, errors.New("MODE=" + mode + ": want device-plugin, or none")
	}
	return cfg, nil
}

// notAvoided is said of a pod that its node did not admit.
const notAvoided = `  Device-plugin mode cannot avoid such a failure: a free slot counts on every node that sees the
  device, so the upstream scheduler may give two nodes pods for one slot, and one pod fails. See
  "What this mode cannot do" in docs/device-plugin-mode.md. A ReplicaSet makes another pod at
  once. This pod has none, so the demo makes it again.
`

// playDevicePlugins is the play in device-plugin mode.
func (s *show) playDevicePlugins() error {
	title("Apply a Configuration: two cameras, two slots each (test/demo/cameras.yaml)")
	fmt.Print(cameras)
	if err := s.apply("cameras.yaml", cameras); err != nil {
		return err
	}
	amounts := func() (string, error) {
		return s.kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}: {.status.allocatable}{"\n"}{end}`)
	}
	err := s.await("both kubelets to report two cameras (they do so every 10 s)", func() (bool, error) {
		out, err := s.cluster.Kubectl(s.ctx, "get", "nodes", "-o", `jsonpath={.items[*].status.allocatable.akri\.sh/cameras}`)
		return strings.Join(strings.Fields(out), " ") == "2 2", err
	})
	if err != nil {
		return err
	}
	title("What the kubelets report: two cameras for a container, and each camera's two slots")
	if err := s.print(amounts()); err != nil {
		return err
	}
	title("Create two pods that want two cameras each (test/demo/viewers.yaml), then a third")
	third := strings.LastIndex(viewers, "---")
	if err := s.apply("viewers.yaml", viewers[:third]); err != nil {
		return err
	}
	// The third may be given to a node before the second has its slots, and would take them.
	for _, name := range []string{"viewer-1", "viewer-2"} {
		if err := s.await("pod "+name+" to run", s.running(name)); err != nil {
			return err
		}
	}
	if err := s.apply("viewers.yaml", viewers[third:]); err != nil {
		return err
	}
	title("Who holds which slot: a node, by an id of its kubelet")
	if err := s.print(s.kubectl("get", "slotclaims", "-o", "custom-columns=SLOT:.metadata.name,NODE:.spec.nodeName,ID:.spec.holder")); err != nil {
		return err
	}
	if err := s.printDevices("viewer-1"); err != nil {
		return err
	}
	title("Delete viewer-1: its slots are free for viewer-3")
	if _, err := s.kubectl("delete", "pod", "viewer-1"); err != nil {
		return err
	}
	gone := time.Now()
	if err := s.awaitViewer3(); err != nil {
		return err
	}
	fmt.Printf("viewer-3 runs %.2f s after viewer-1 was gone\n", time.Since(gone).Seconds())
	return s.printDevices("viewer-3")
}

// awaitViewer3 waits for viewer-3 to run, and makes it again when its node does not admit it:
// the scheduler sees a kubelet's amounts up to 10 s late.
func (s *show) awaitViewer3() error {
	const name = "viewer-3"
	for range 5 {
		phase := v1.PodPending
		err := s.await("pod "+name+" to run, or to fail", func() (bool, error) {
			p, err := s.kube.CoreV1().Pods(namespace).Get(s.ctx, name, metav1.GetOptions{})
			if err == nil {
				phase = p.Status.Phase
			}
			return phase == v1.PodRunning || phase == v1.PodFailed, err
		})
		if err != nil || phase == v1.PodRunning {
			return err
		}
		if err := s.print(s.kubectl("get", "pod", name, "-o", `jsonpath={.status.phase}: {.status.reason} {.status.message}{"\n"}`)); err != nil {
			return err
		}
		fmt.Print(notAvoided)
		if _, err := s.kubectl("delete", "pod", name); err != nil {
			return err
		}
		if err := s.apply("viewers.yaml", viewers[strings.LastIndex(viewers, "---"):]); err != nil {
			return err
		}
	}
	return fmt.Errorf("pod %s failed five times", name)
}

// printDevices shows what a pod's container sees of its devices.
func (s *show) printDevices(name string) error {
	out, err := s.kubectl("exec", name, "--", "/app", "env")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "DEBUG_ECHO_") || strings.HasPrefix(line, "AKRI_") || strings.HasPrefix(line, "SITE") {
			fmt.Print("  " + line)
		}
	}
	return err
}
