package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	metricsAddress = "127.0.0.1:10360"
	healthAddress  = "127.0.0.1:10361"
	// stopsWithin is when a rollout has stopped whose brokers do not become Ready: the
	// controller waits a minute for them.
	stopsWithin = 75 * time.Second
)

// images of the brokers, one after the other.
var images = []string{"first", "second", "third"}

// bench measures one arm.
type bench struct {
	*options
	arm        arm
	instances  int
	cluster    *cluster.Cluster
	kube       kubernetes.Interface
	akri       versioned.Interface
	audit      *audit
	kubelets   *kubelets
	controller *exec.Cmd
	ended      <-chan error // the controller; nil when none runs
}

// result is what was measured of an arm.
type result struct {
	arm       arm
	instances int
	// made is from the Configuration's creation until all brokers are Ready and it says so.
	made, idle, restart, away, rollout, stopped, mended, gone cost
	// allReady is the part of made until all brokers are Ready.
	allReady time.Duration
	empty    memory // without devices
	full     memory
	// rolledOut is set when roll-outs were measured.
	rolledOut bool
	// replaced is how many brokers the rollout that stopped has replaced.
	replaced int
}

func newBench(c *cluster.Cluster, o *options, a arm, instances int) (*bench, error) {
	b := &bench{options: o, arm: a, instances: instances, cluster: c}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if b.akri, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	log, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, err
	}
	b.audit = newAudit(log)
	return b, nil
}

func (b *bench) run(ctx context.Context) (r result, err error) {
	defer b.audit.file.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.arm, r.instances = b.arm, b.instances
	if b.kubelets, err = startKubelets(ctx, b.kube); err != nil {
		return r, err
	}
	if err := b.kubelets.collectGarbage(ctx, b.akri); err != nil {
		return r, err
	}
	if err := b.startController(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.endController()) }()
	if r.empty, err = b.controllerMemory(ctx); err != nil {
		return r, err
	}
	if err := b.createNodes(ctx); err != nil {
		return r, err
	}
	progress("%s: %d nodes report %d devices", b.arm.name, b.options.nodes, b.instances)

	configurations := b.akri.AkriV0().Configurations(namespace)
	begin := time.Now()
	r.made, err = b.phase(ctx, "all brokers are made", true, func() error {
		_, err := configurations.Create(ctx, b.theConfiguration(), metav1.CreateOptions{})
		return err
	}, func() error {
		if err := b.allReady(images[0]); err != nil {
			return err
		}
		if r.allReady == 0 {
			r.allReady = time.Since(begin)
		}
		return b.statusSays(ctx, b.instances)
	})
	if err != nil {
		return r, err
	}
	if err := b.checkServices(ctx, b.instances+1); err != nil {
		return r, err
	}
	if r.full, err = b.controllerMemory(ctx); err != nil {
		return r, err
	}
	none := func() error { return nil }
	if r.idle, err = b.phase(ctx, "nothing happens", false, func() error { return b.watch(ctx) }, none); err != nil {
		return r, err
	}
	if err := b.endController(); err != nil {
		return r, err
	}
	if r.restart, err = b.restartController(ctx, "the controller was restarted", b.worksOff); err != nil {
		return r, err
	}
	if r.rolledOut = b.instances <= b.rollouts; r.rolledOut {
		if err := b.rollOut(ctx, &r); err != nil {
			return r, err
		}
	}
	if r.away, err = b.measureAway(ctx); err != nil {
		return r, err
	}
	if !r.rolledOut {
		return r, nil // all goes with the cluster
	}
	r.gone, err = b.phase(ctx, "the brokers are taken away", true, func() error {
		_, err := configurations.Patch(ctx, configuration, types.MergePatchType, []byte(`{"spec":{"brokerSpec":null}}`), metav1.PatchOptions{})
		return err
	}, func() error {
		if _, left := b.kubelets.count(""); left > 0 {
			return fmt.Errorf("%d pods are left", left)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	return r, b.checkServices(ctx, 0)
}

// restartController starts the controller, which does not run, and measures it from its start.
func (b *bench) restartController(ctx context.Context, name string, done func() error) (cost, error) {
	wrote, err := b.audit.written()
	if err != nil {
		return cost{}, err
	}
	begin := time.Now()
	if err := b.startController(ctx); err != nil {
		return cost{}, err
	}
	c, err := b.phase(ctx, name, true, func() error { return nil }, done)
	if err != nil {
		return c, err
	}
	c.took += time.Since(begin) - c.all
	now, err := b.audit.written()
	if err != nil {
		return c, err
	}
	c.writes = now.since(wrote)
	c.controller, err = cpuSeconds(b.controller.Process.Pid)
	return c, err
}

// rollOut measures roll-outs.
func (b *bench) rollOut(ctx context.Context, r *result) (err error) {
	configurations, all := b.akri.AkriV0().Configurations(namespace), b.arm.brokers(b.instances)
	use := func(image string) func() error {
		return func() error {
			patch := fmt.Appendf(nil, `{"spec":{"brokerSpec":{"brokerPodSpec":%s}}}`, podSpec(image))
			_, err := configurations.Patch(ctx, configuration, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
	}
	r.rollout, err = b.phase(ctx, "another image rolls out", true, use(images[1]), func() error { return b.allReady(images[1]) })
	if err != nil {
		return err
	}
	if err := use(brokenImage)(); err != nil {
		return err
	}
	if err := sleep(ctx, stopsWithin); err != nil {
		return err
	}
	if r.stopped, err = b.phase(ctx, "a rollout is stopped", false, func() error { return b.watch(ctx) },
		func() error { return nil }); err != nil {
		return err
	}
	still, _ := b.kubelets.count(images[1])
	r.replaced = all - still
	r.mended, err = b.phase(ctx, "the image is mended", true, use(images[2]), func() error { return b.allReady(images[2]) })
	return err
}

// watch lets the time pass in which the controller is watched.
func (b *bench) watch(ctx context.Context) error { return sleep(ctx, b.options.idle) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// allReady reports what is missing until all brokers are of an image, and Ready.
func (b *bench) allReady(image string) error {
	want := b.arm.brokers(b.instances)
	if ready, all := b.kubelets.count(image); ready != want || all != want {
		return fmt.Errorf("%d of %d brokers are Ready with the image %s, and there are %d in all", ready, want, image, all)
	}
	return nil
}

// statusSays reports what is missing until the status has so many Instances, and their brokers.
func (b *bench) statusSays(ctx context.Context, instances int) error {
	c, err := b.akri.AkriV0().Configurations(namespace).Get(ctx, configuration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n := int32(b.arm.brokers(instances))
	want := akriv0.BrokerCount{Desired: n, Ready: n, Updated: n}
	if s := c.Status; s.Brokers == nil || *s.Brokers != want || int(s.Instances) != instances {
		return fmt.Errorf("the status says %+v of %d Instances", s.Brokers, s.Instances)
	}
	return nil
}

// checkServices checks how many Services there are, besides the API server's.
func (b *bench) checkServices(ctx context.Context, want int) error {
	list, err := b.kube.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: "controller=akri.sh"})
	if err == nil && len(list.Items) != want {
		err = fmt.Errorf("there are %d Services of brokers, want %d", len(list.Items), want)
	}
	return err
}

// startController runs the controller in the control plane's network namespace, and waits
// until it works.
func (b *bench) startController(ctx context.Context) error {
	pid, err := b.cluster.PID(cluster.APIServer, "")
	if err != nil {
		return err
	}
	log, err := os.OpenFile(b.cluster.LogPath(cluster.Controller, ""), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	b.controller = exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--", filepath.Join(b.cluster.BinDir(), cluster.Controller),
		"--kubeconfig="+b.cluster.ComponentKubeconfig(cluster.Controller, ""), "--leader-elect=false",
		"--metrics-bind-address="+metricsAddress, "--health-probe-bind-address="+healthAddress)
	b.controller.Stdout, b.controller.Stderr = log, log
	// No Pdeathsig: it is of the thread, and get ends threads. What is left of a run that
	// was killed is taken away with the cluster.
	if err := b.controller.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	b.ended = ended
	go func(c *exec.Cmd) { ended <- c.Wait() }(b.controller)
	return await(ctx, "the controller works", func() error {
		_, err := b.get(ctx, healthAddress, "/readyz")
		return err
	})
}

// endController ends the controller as its supervisor does.
func (b *bench) endController() error {
	if b.ended == nil {
		return nil
	}
	if err := b.controller.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := <-b.ended
	if b.ended = nil; err != nil {
		err = fmt.Errorf("the controller ended with %w: see %s", err, b.cluster.LogPath(cluster.Controller, ""))
	}
	return err
}
