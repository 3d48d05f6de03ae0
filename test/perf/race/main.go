// Command race has 200 pods race for 50 slots of devices that two nodes share, in
// device-plugin mode under the upstream scheduler and under ours, and in proxy mode, and
// says how long they took and how many the kubelets failed. See docs/device-plugin-mode.md.
//
// The race is real when the slots are the bottleneck: a pod holds its slot for longer than
// it takes the two nodes to start 50 pods. Both nodes then report, up to 10 s late, slots
// that are taken on the other. With -instances it measures one node with very many devices
// (many.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// race is what is run.
type race struct {
	pods, devices, capacity int
	hold                    time.Duration
	binaries                map[string]string
}

// arm is one way to run it.
type arm struct {
	name  string
	about string // row of the table: mode, scheduler, uniqueDevices
	// devicePlugin has both nodes in device-plugin mode, upstream the upstream scheduler.
	devicePlugin, upstream bool
	unique                 bool
}

var arms = []arm{
	{"upstream", "device-plugin | upstream's | false", true, true, false},
	{"upstream-unique", "device-plugin | upstream's | true", true, true, true},
	{"ours", "device-plugin | Kubeslot's | false", true, false, false},
	{"proxy", "proxy | Kubeslot's | false", false, false, false},
	{"proxy-unique", "proxy | Kubeslot's | true", false, false, true},
}

// result is what came of it in one arm.
type result struct {
	arm
	failed   map[string]int // pods that failed, by reason
	running  []time.Duration
	all      time.Duration // until the last pod has ended
	most     int           // slots in use at once
	finished int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var r race
	folder, chosen := "", ""
	flag.IntVar(&r.pods, "pods", 200, "pods that race")
	flag.IntVar(&r.devices, "devices", 5, "devices that both nodes see")
	flag.IntVar(&r.capacity, "capacity", 10, "slots of each")
	flag.DurationVar(&r.hold, "hold", 30*time.Second, "how long a pod holds its slot")
	flag.StringVar(&chosen, "arms", "upstream,upstream-unique,ours,proxy,proxy-unique", "which to run")
	instances := flag.Int("instances", 0, "instead of the race: measure one node with so many Instances")
	flag.StringVar(&folder, "binaries", "", "directory of kubecri, controller, kube-scheduler and kubectl-kubeslot, to be used instead of building them")
	flag.Parse()
	r.binaries = map[string]string{}
	for _, name := range []string{cluster.Kubecri, cluster.Controller, cluster.Scheduler, "kubectl-kubeslot"} {
		if _, err := os.Stat(folder + "/" + name); folder != "" && err == nil {
			r.binaries[name] = folder + "/" + name
		}
	}
	var err error
	if *instances > 0 {
		err = r.many(ctx, *instances)
	} else {
		err = r.all(ctx, strings.Split(chosen, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "race:", err)
		os.Exit(1)
	}
}

func (r *race) all(ctx context.Context, chosen []string) error {
	var rows []string
	for _, name := range chosen {
		i := slices.IndexFunc(arms, func(a arm) bool { return a.name == name })
		if i < 0 {
			return fmt.Errorf("there is no arm %q", name)
		}
		got, err := r.in(ctx, arms[i])
		if err != nil {
			return fmt.Errorf("arm %s: %w", name, err)
		}
		rows = append(rows, got.String())
		fmt.Println(got)
	}
	fmt.Printf("\n%d pods, each with one slot for %s, %d slots that two nodes share\n\n", r.pods, r.hold, r.devices*r.capacity)
	fmt.Println("| mode | scheduler | uniqueDevices | pods that failed | slots in use, at most | time to Running: median | 90 % | all | last pod ended |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, row := range rows {
		fmt.Println(row)
	}
	return nil
}

// String is the result's row of the table.
func (x result) String() string {
	var failed []string
	for reason, n := range x.failed {
		failed = append(failed, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(failed)
	if failed == nil {
		failed = []string{"0"}
	}
	at := func(q float64) string {
		if len(x.running) == 0 {
			return "-"
		}
		return x.running[min(int(q*float64(len(x.running))), len(x.running)-1)].Round(100 * time.Millisecond).String()
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %s |", x.about, strings.Join(failed, ", "), x.most, at(.5), at(.9), at(1), x.all.Round(100*time.Millisecond))
}

// in runs the race on a cluster of its own.
func (r *race) in(ctx context.Context, a arm) (got result, err error) {
	cfg := cluster.Config{Name: "race", Nodes: []string{"node-a", "node-b"}, Binaries: map[string]string{}}
	for name, path := range r.binaries {
		cfg.Binaries[name] = path
	}
	if a.devicePlugin {
		cfg.DevicePlugin = cfg.Nodes
	}
	if a.upstream {
		cfg.StockScheduler = true
		delete(cfg.Binaries, cluster.Scheduler)
	}
	if err := cluster.Down(ctx, cfg); err != nil {
		return got, err
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	config, err := c.RESTConfig()
	if err != nil {
		return got, err
	}
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return got, err
	}
	akri, err := versioned.NewForConfig(config)
	if err != nil {
		return got, err
	}
	var names []string
	for i := range r.devices {
		names = append(names, fmt.Sprint("camera", i))
	}
	_, err = akri.AkriV0().Configurations("default").Create(ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam"},
		Spec: akriv0.ConfigurationSpec{Capacity: int32(r.capacity), UniqueDevices: &a.unique, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho",
			DiscoveryDetails: "descriptions: [" + strings.Join(names, ", ") + "]"}}}, metav1.CreateOptions{})
	if err != nil {
		return got, err
	}
	if err := awaitNodes(ctx, kube); err != nil {
		return got, err
	}
	got, err = r.run(ctx, kube)
	got.arm = a
	return got, err
}

// awaitNodes waits until both nodes advertise the devices.
func awaitNodes(ctx context.Context, kube kubernetes.Interface) error {
	for {
		nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes.Items {
			if amount := n.Status.Allocatable["akri.sh/cam"]; !amount.IsZero() {
				ready++
			}
		}
		if ready == 2 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// run creates the pods at once, replaces those that fail, as a ReplicaSet does, and
// returns when each of them has had its slot.
func (r *race) run(ctx context.Context, kube kubernetes.Interface) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	got := result{failed: map[string]int{}}
	watch, err := kube.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: "race"})
	if err != nil {
		return got, err
	}
	defer watch.Stop()
	began := time.Now()
	tries := map[string]int{}
	create := func(name string) error {
		tries[name]++
		_, err := kube.CoreV1().Pods("default").Create(ctx, r.pod(name, tries[name]), metav1.CreateOptions{})
		return err
	}
	for i := range r.pods {
		if err := create(fmt.Sprint("p", i)); err != nil {
			return got, err
		}
	}
	running, over, holds := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for got.finished < r.pods {
		select {
		case event, ok := <-watch.ResultChan():
			p, is := event.Object.(*corev1.Pod)
			if !ok || !is {
				return got, fmt.Errorf("the watch of the pods ended: %v", event.Object)
			}
			name := p.Labels["race"]
			if (p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded) && !running[name] {
				running[name] = true
				got.running = append(got.running, time.Since(began))
			}
			if p.Status.Phase == corev1.PodRunning {
				holds[p.Name] = true
			} else {
				delete(holds, p.Name)
			}
			got.most = max(got.most, len(holds))
			switch {
			case over[p.Name]:
			case p.Status.Phase == corev1.PodSucceeded:
				over[p.Name] = true
				got.finished++
			case p.Status.Phase == corev1.PodFailed:
				over[p.Name] = true
				got.failed[p.Status.Reason]++
				if err := create(name); err != nil {
					return got, err
				}
			}
		case <-ctx.Done():
			return got, fmt.Errorf("%w: %d of %d pods have ended, failed %v", ctx.Err(), got.finished, r.pods, got.failed)
		}
	}
	got.all = time.Since(began)
	slices.Sort(got.running)
	return got, nil
}

func (r *race) pod(name string, try int) *corev1.Pod {
	grace, no := int64(0), false
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, try), Labels: map[string]string{"race": name}}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever, Args: []string{"sleep", r.hold.String()},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}}}}}}
}
