package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// many is one node in device-plugin mode that sees very many devices, each of them a
// device plugin of its own.
type many struct {
	*cluster.Cluster
	kube      kubernetes.Interface
	instances int
}

// many measures what so many Instances cost a node.
func (r *race) many(ctx context.Context, instances int) (err error) {
	cfg := cluster.Config{Name: "race", Nodes: []string{"node-a"}, DevicePlugin: []string{"node-a"}, StockScheduler: true, Binaries: r.binaries}
	delete(cfg.Binaries, cluster.Scheduler)
	if err := cluster.Down(ctx, cfg); err != nil {
		return err
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	m := &many{Cluster: c, instances: instances}
	if m.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	akri, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := m.say(ctx, "before", 0); err != nil {
		return err
	}
	var names []string
	for i := range instances {
		names = append(names, fmt.Sprint("camera", i))
	}
	began := time.Now()
	_, err = akri.AkriV0().Configurations("default").Create(ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam"},
		Spec: akriv0.ConfigurationSpec{Capacity: 2, InstanceNameDigits: 12, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho",
			DiscoveryDetails: "descriptions: [" + strings.Join(names, ", ") + "]"}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := m.await(ctx, instances); err != nil {
		return err
	}
	if err := m.say(ctx, "the node has all resources", time.Since(began)); err != nil {
		return err
	}
	for _, name := range []string{"akri.sh/cam", m.one(ctx)} {
		began := time.Now()
		p := r.pod("p", 0)
		p.Name = strings.ReplaceAll(strings.TrimPrefix(name, "akri.sh/"), "/", "-")
		p.Spec.Containers[0].Args = []string{"sleep", "10m"}
		amount := p.Spec.Containers[0].Resources.Limits["akri.sh/cam"]
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(name): amount}
		if _, err := m.kube.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			p, err := m.kube.CoreV1().Pods("default").Get(ctx, p.Name, metav1.GetOptions{})
			return err == nil && p.Status.Phase == corev1.PodRunning, nil
		})
		if err != nil {
			return fmt.Errorf("pod of %s: %w", name, err)
		}
		fmt.Printf("| a pod with %s runs | %s |\n", name, time.Since(began).Round(time.Millisecond))
	}
	for _, component := range []string{cluster.Kubelet, cluster.Kubecri} {
		if err := m.Kill(component, "node-a", syscall.SIGKILL); err != nil {
			return err
		}
		// While one of them is away the node has nothing to give.
		if component == cluster.Kubecri {
			if err := m.await(ctx, 0); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := m.Start(component, "node-a"); err != nil {
			return err
		}
		if err := m.awaitRegistered(ctx, began); err != nil {
			return err
		}
		if err := m.await(ctx, instances); err != nil {
			return err
		}
		if err := m.say(ctx, component+" was restarted, and the node has all", time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// one is the resource of one of the Instances.
func (m *many) one(ctx context.Context) string {
	node, err := m.kube.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	for name := range node.Status.Allocatable {
		if strings.HasPrefix(string(name), "akri.sh/cam-") {
			return string(name)
		}
	}
	return ""
}

// await waits until the node has slots of so many Instances, each as a resource too.
func (m *many) await(ctx context.Context, instances int) error {
	seen := 0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		node, err := m.kube.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		seen = 0
		for name, n := range node.Status.Allocatable {
			if strings.HasPrefix(string(name), "akri.sh/cam-") && !n.IsZero() {
				seen++
			}
		}
		return seen == instances, nil
	})
	if err != nil {
		return fmt.Errorf("node-a has the resources of %d of %d Instances: %w", seen, instances, err)
	}
	return nil
}

var registered = regexp.MustCompile(`Registered device plugins with the kubelet".* plugins=(\d+) took="([^"]*)"`)

// awaitRegistered waits until kubecri logs that it has registered all plugins again.
func (m *many) awaitRegistered(ctx context.Context, began time.Time) error {
	path := m.LogPath(cluster.Kubecri, "node-a")
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Minute, true, func(context.Context) (bool, error) {
		log, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		all := registered.FindAllSubmatch(log[min(len(before), len(log)):], -1)
		total := 0
		for _, match := range all {
			n, _ := strconv.Atoi(string(match[1]))
			total += n
		}
		if total < m.instances {
			return false, nil
		}
		fmt.Printf("| %d plugins registered, the last %s in %s | %s |\n", total, all[len(all)-1][1], all[len(all)-1][2], time.Since(began).Round(10*time.Millisecond))
		return true, nil
	})
}

// say prints what the node and its processes take.
func (m *many) say(ctx context.Context, when string, took time.Duration) error {
	node, err := m.kube.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
	if err != nil {
		return err
	}
	data, err := json.Marshal(node)
	if err != nil {
		return err
	}
	sockets, err := filepath.Glob(filepath.Join(m.Nodes()[0].KubeletDir, "device-plugins", "kubeslot-*.sock"))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("| %s | %s | %d sockets, Node object %d kB", when, took.Round(10*time.Millisecond), len(sockets), len(data)/1000)
	for _, component := range []string{cluster.Kubecri, cluster.Kubelet} {
		pid, err := m.PID(component, "node-a")
		if err != nil {
			return err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return err
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		kb := 0
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				kb, _ = strconv.Atoi(strings.Fields(value)[0])
			}
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		text += fmt.Sprintf(", %s %d MiB and %d CPU s", component, kb/1024, (user+system)/100)
	}
	fmt.Println(text + " |")
	return nil
}
