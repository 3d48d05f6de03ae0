package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// podPatience is how long a pod may take to start or to go.
const podPatience = time.Minute

// podBench starts pods through real kubelets: on one node the kubelet is at
// containerd's socket, on the other at kubecri's. Half way they change places, so
// that what the nodes differ in otherwise meets both ways.
type podBench struct {
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	nodes   []podNode
	rounds  int
	serial  int // pods one after the other, a block
	at      int // pods at a time
	made    int
}

type podNode struct {
	cluster.Node
	runtime runtimeapi.RuntimeServiceClient // past kubecri
	kubecri process
}

func newPodBench(c *cluster.Cluster, rounds, serial, at int) (*podBench, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	b := &podBench{cluster: c, rounds: rounds, serial: serial, at: at}
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	for _, n := range c.Nodes() {
		conn, err := grpc.NewClient("unix://"+n.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		node := podNode{Node: n, runtime: runtimeapi.NewRuntimeServiceClient(conn)}
		if node.kubecri.pid, err = c.PID(cluster.Kubecri, n.Name); err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, node)
	}
	if len(b.nodes) != 2 {
		return nil, fmt.Errorf("the cluster has %d nodes, want 2 for pods", len(b.nodes))
	}
	return b, nil
}

// run returns a result for pods one by one and one for several at a time.
func (b *podBench) run(ctx context.Context) ([]result, error) {
	results := []result{{operation: "Pod start"}, {operation: fmt.Sprintf("Pod start, %d at a time", b.at)}}
	for swap := range 2 {
		// ways[0] is direct, as in bench.ways.
		ways := []podNode{b.nodes[swap], b.nodes[1-swap]}
		for i, socket := range []string{ways[0].ContainerdSocket, ways[1].KubecriSocket} {
			if err := b.point(ctx, ways[i], socket); err != nil {
				return nil, err
			}
		}
		for round := range b.rounds {
			for turn := range ways {
				i := (round + turn) % 2
				for kind, count := range []int{b.serial, b.at} {
					before, err := ways[i].kubecri.cpu()
					if err != nil {
						return nil, err
					}
					times, err := b.block(ctx, ways[i], count, kind == 1)
					if err != nil {
						return nil, err
					}
					r := &results[kind]
					r.times[i] = append(r.times[i], times...)
					if i == 0 {
						continue
					}
					after, err := ways[i].kubecri.cpu()
					if err != nil {
						return nil, err
					}
					r.cpu += after - before
					r.calls += count
				}
			}
		}
	}
	for _, r := range results {
		fmt.Fprintf(os.Stderr, "%-36s direct p50 %v, kubecri p50 %v\n", r.operation, quantile(r.times[0], .5), quantile(r.times[1], .5))
	}
	return results, nil
}

// point starts the node's kubelet anew with the runtime at socket, and warms it up.
func (b *podBench) point(ctx context.Context, n podNode, socket string) error {
	path := filepath.Join(n.Dir, "kubelet.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found := false
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "containerRuntimeEndpoint:") {
			lines[i], found = "containerRuntimeEndpoint: unix://"+socket, true
		}
	}
	if !found {
		return fmt.Errorf("%s has no containerRuntimeEndpoint", path)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return err
	}
	if err := b.cluster.Restart(cluster.Kubelet, n.Name); err != nil {
		return err
	}
	_, err = b.block(ctx, n, 2, false)
	return err
}

// block starts pods and returns how long each took, from its creation to the start
// of its process. The pods are taken away before it returns.
func (b *podBench) block(ctx context.Context, n podNode, count int, together bool) ([]time.Duration, error) {
	times, errs := make([]time.Duration, count), make([]error, count)
	var working sync.WaitGroup
	for i := range count {
		b.made++
		name := fmt.Sprintf("bench-%d", b.made)
		one := func() { times[i], errs[i] = b.start(ctx, n, name) }
		if together {
			working.Go(one)
		} else {
			one()
		}
	}
	working.Wait()
	return times, errors.Join(append(errs, b.clear(ctx))...)
}

// start makes a pod for the node, past the scheduler. Its kubelet learns a second
// later at most that it runs; the runtime knows at once, to the nanosecond.
func (b *podBench) start(ctx context.Context, n podNode, name string) (time.Duration, error) {
	no, grace := false, int64(0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: n.Name, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever}}}}
	began := time.Now()
	_, err := b.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	id := ""
	err = poll(ctx, "pod "+name+" to run", func() (bool, error) {
		p, err := b.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) == 0 {
			return false, err
		}
		_, id, _ = strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		return id != "", nil
	})
	if err != nil {
		return 0, err
	}
	status, err := n.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return 0, err
	}
	return time.Unix(0, status.Status.StartedAt).Sub(began), nil
}

// clear removes all pods of the benchmark, and waits until they have gone.
func (b *podBench) clear(ctx context.Context) error {
	pods := b.kube.CoreV1().Pods(metav1.NamespaceDefault)
	grace := int64(1)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{}); err != nil {
		return err
	}
	return poll(ctx, "the pods to be gone", func() (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "bench-") }), err
	})
}

func poll(ctx context.Context, what string, done func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, podPatience, true, func(context.Context) (bool, error) { return done() })
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
