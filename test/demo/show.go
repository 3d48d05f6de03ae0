package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	namespace = "default"
	// patience bounds each wait.
	patience = 2 * time.Minute
	// promise is how soon a waiting pod runs once a holder is gone.
	promise = 2 * time.Second
)

// show is the play that the demo gives.
type show struct {
	ctx     context.Context
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	akri    versioned.Interface
}

func newShow(ctx context.Context, c *cluster.Cluster) (*show, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	s := &show{ctx: ctx, cluster: c}
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	s.akri, err = versioned.NewForConfig(config)
	return s, err
}

func (s *show) play() error {
	title("Apply a Configuration: two cameras, two slots each (test/demo/cameras.yaml)")
	fmt.Print(cameras)
	if err := s.apply("cameras.yaml", cameras); err != nil {
		return err
	}
	if err := s.await("both nodes to have found and advertised both cameras", s.camerasFound); err != nil {
		return err
	}
	title("What each node reports, and the devices that come of it")
	if err := s.print(s.kubectl("get", "deviceslices")); err != nil {
		return err
	}
	if err := s.print(s.kubectl("kubeslot", "instances")); err != nil {
		return err
	}

	title("Create three pods that want two cameras each (test/demo/viewers.yaml)")
	if err := s.apply("viewers.yaml", viewers); err != nil {
		return err
	}
	for _, name := range []string{"viewer-1", "viewer-2"} {
		if err := s.await("pod "+name+" to run", s.running(name)); err != nil {
			return err
		}
	}
	title("Who holds which slot")
	if err := s.printSlots(); err != nil {
		return err
	}
	for _, name := range []string{"viewer-1", "viewer-2"} {
		if err := s.printPod(name); err != nil {
			return err
		}
	}

	title("The third pod waits, and says why")
	if err := s.await("the scheduler's reason for viewer-3", s.refused("viewer-3")); err != nil {
		return err
	}
	if err := s.print(s.kubectl("kubeslot", "pod", "viewer-3")); err != nil {
		return err
	}

	title("Delete viewer-1: viewer-3 gets its slots")
	asked := time.Now()
	if _, err := s.kubectl("delete", "pod", "viewer-1"); err != nil {
		return err
	}
	gone := time.Now()
	if err := s.await("pod viewer-3 to run", s.running("viewer-3")); err != nil {
		return err
	}
	took := time.Since(gone)
	fmt.Printf("viewer-3 runs %.2f s after viewer-1 was gone, %.2f s after its deletion was asked for\n",
		took.Seconds(), time.Since(asked).Seconds())
	if err := s.printSlots(); err != nil {
		return err
	}
	if err := s.printPod("viewer-3"); err != nil {
		return err
	}
	if took > promise {
		return fmt.Errorf("viewer-3 took %.2f s to run after the holder was gone, and %v was promised", took.Seconds(), promise)
	}
	if err := s.hotplug(); err != nil {
		return err
	}
	title("Done: no slot was given twice, and none was left unused")
	if err := s.print(s.kubectl("kubeslot", "list")); err != nil {
		return err
	}
	return s.printSlots()
}

func (s *show) kubectl(args ...string) (string, error) {
	fmt.Println("$ kubectl", strings.Join(args, " "))
	return s.cluster.Kubectl(s.ctx, args...) // in the namespace default

}

func (s *show) print(out string, err error) error {
	fmt.Print(out)
	return err
}

func (s *show) apply(name, text string) error {
	dir, err := os.MkdirTemp("", "kubeslot-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	fmt.Println("$ kubectl apply -f", filepath.Join("test/demo", name))
	return s.print(s.cluster.Kubectl(s.ctx, "-n", namespace, "apply", "-f", file))
}

// await waits for a condition, with a line that shows it is not stuck.
func (s *show) await(what string, done func() (bool, error)) error {
	start := time.Now()
	var last error
	err := wait.PollUntilContextTimeout(s.ctx, 20*time.Millisecond, patience, true, func(context.Context) (ok bool, _ error) {
		ok, last = done()
		return ok, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waited %v for %s: %w", time.Since(start).Round(time.Second), what, err), last)
	}
	fmt.Printf("  (waited %.2f s for %s)\n", time.Since(start).Seconds(), what)
	return nil
}

// camerasFound is asked before there are other devices.
func (s *show) camerasFound() (bool, error) {
	list, err := s.akri.AkriV0().Instances(namespace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	nodes, err := s.kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for _, in := range list.Items {
		if len(in.Spec.Nodes) != len(nodes.Items) {
			return false, nil
		}
	}
	for _, n := range nodes.Items {
		if slots := n.Status.Allocatable["akri.sh/cameras"]; slots.Value() != 4 {
			return false, nil
		}
	}
	return len(list.Items) == 2, nil
}

func (s *show) running(name string) func() (bool, error) {
	return func() (bool, error) {
		p, err := s.kube.CoreV1().Pods(namespace).Get(s.ctx, name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == v1.PodRunning, err
	}
}

func (s *show) refused(name string) func() (bool, error) {
	return s.told(name, "FailedScheduling")
}

func (s *show) printSlots() error { return s.print(s.kubectl("kubeslot", "slots")) }

// printPod shows the pod's assignment, and what its container sees of it.
func (s *show) printPod(name string) error {
	p, err := s.kube.CoreV1().Pods(namespace).Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("%s on %s, annotation %s:\n  %s\n", name, p.Spec.NodeName, assignment.Annotation, p.Annotations[assignment.Annotation])
	out, err := s.kubectl("exec", name, "--", "/app", "env")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "DEBUG_ECHO_") || strings.HasPrefix(line, "AKRI_") || strings.HasPrefix(line, "SITE") {
			fmt.Println("  " + line)
		}
	}
	return nil
}
