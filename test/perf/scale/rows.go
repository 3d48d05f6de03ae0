package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	namespace = metav1.NamespaceDefault
	capacity  = 10 // slots of each shared device

	// afterElection is when nodes without a Lease watch the Leases no more: 30 s, and some.
	afterElection = 45 * time.Second
)

// result is what was measured with so many nodes.
type result struct {
	Nodes          int
	Join, Idle     cost
	Elected        cost            // idle, with spec.discovery
	Claim, Release cost            // of all claims
	Taken, Told    []time.Duration // of each claim: Take has returned, a watcher of all claims knows
	Restart        cost
	Bare           bare
}

// size runs the rows with n nodes.
func (b *bench) size(ctx context.Context, n int) (result, error) {
	r := result{Nodes: n}
	if err := b.createNodes(ctx, n); err != nil {
		return r, err
	}
	if err := b.startNodes(ctx, n); err != nil {
		return r, err
	}
	defer b.endNodes()
	if err := b.quiet(ctx); err != nil {
		return r, err
	}
	progress("%d nodes run", n)
	for _, row := range []struct {
		name    string
		measure func(context.Context, *result) error
	}{{"join", b.measureJoin}, {"idle", b.measureIdle}, {"claims", b.measureClaims}, {"restart", b.measureRestart},
		{"elected", b.measureElected}, {"bare", b.measureBare}} {
		end := b.profile(ctx, row.name, n)
		if err := errors.Join(row.measure(ctx, &r), end()); err != nil {
			return r, fmt.Errorf("%s: %w", row.name, err)
		}
	}
	return r, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

func (b *bench) createNodes(ctx context.Context, n int) error {
	b.identities = make([]*rest.Config, n)
	return parallel(ctx, n, func(i int) (err error) {
		if b.identities[i], err = identity(b.cluster, b.admin.Host, nodeName(i), &b.traffic); err != nil {
			return err
		}
		return b.createNode(ctx, nodeName(i))
	})
}

func (b *bench) createNode(ctx context.Context, name string) error {
	amounts := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi")}
	nodes := b.kube.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: amounts, Allocatable: amounts, Conditions: []corev1.NodeCondition{ready}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = nil // admission has added that it is not ready
	_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// startNodes runs n hollow nodes and waits until their caches have synced.
func (b *bench) startNodes(ctx context.Context, n int) error {
	b.nodes = make([]*node, n)
	if err := parallel(ctx, n, func(i int) (err error) {
		b.nodes[i], err = start(ctx, nodeName(i), b.identities[i])
		return err
	}); err != nil {
		return err
	}
	return await(ctx, "all hollow nodes have synced", func() error {
		for _, n := range b.nodes {
			if !n.hasSynced() {
				return fmt.Errorf("%s has not", n.name)
			}
		}
		return nil
	})
}

func (b *bench) endNodes() {
	workqueue.ParallelizeUntil(context.Background(), 16, len(b.nodes), func(i int) {
		if b.nodes[i] != nil {
			b.nodes[i].end()
		}
	})
}

// parallel calls one for 0 to n-1, several at a time.
func parallel(ctx context.Context, n int, one func(i int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(ctx, 16, n, func(i int) { errs[i] = one(i) })
	return errors.Join(append(errs, ctx.Err())...)
}

func configuration(name, details string) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: listed{}.Name(), DiscoveryDetails: details}, Capacity: capacity},
	}
}

// measureJoin has all nodes discover the shared devices at the same time, until each
// has reported all of them.
func (b *bench) measureJoin(ctx context.Context, r *result) error {
	reported, stop, err := b.watchReports(ctx)
	if err != nil {
		return err
	}
	defer stop()
	r.Join, err = b.measure(ctx, func() error {
		_, err := b.client.AkriV0().Configurations(namespace).Create(ctx, configuration("cameras", details("shared", b.shared, "camera-%d")), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return reported(ctx, r.Nodes*b.shared)
	})
	return err
}

// measureIdle watches nodes that have nothing to do.
func (b *bench) measureIdle(ctx context.Context, r *result) (err error) {
	r.Idle, err = b.idleCost(ctx)
	return err
}

func (b *bench) idleCost(ctx context.Context) (cost, error) {
	// What follows from what was before, such as the nodes' totals, is not idle yet.
	if err := b.settle(ctx); err != nil {
		return cost{}, err
	}
	return b.measure(ctx, func() error {
		select {
		case <-time.After(b.options.idle):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
}

// measureElected has two of the nodes discover for all, and watches them when the others have withdrawn
// their devices.
func (b *bench) measureElected(ctx context.Context, r *result) error {
	elected := configuration("cameras", details("shared", b.shared, "camera-%d"))
	elected.Spec.Discovery = &akriv0.Discovery{Replicas: 2}
	configurations := b.client.AkriV0().Configurations(namespace)
	if err := configurations.Delete(ctx, elected.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := b.awaitReporters(ctx, 0); err != nil {
		return err
	}
	if _, err := configurations.Create(ctx, elected, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := b.awaitReporters(ctx, min(2, r.Nodes)); err != nil {
		return err
	}
	select {
	case <-time.After(afterElection):
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	r.Elected, err = b.idleCost(ctx)
	return err
}

// awaitReporters waits until n nodes report devices.
func (b *bench) awaitReporters(ctx context.Context, n int) error {
	return await(ctx, fmt.Sprintf("%d nodes report devices", n), func() error {
		all, err := b.client.KubeslotV1alpha1().DeviceSlices().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		reporters := 0
		for _, slice := range all.Items {
			if len(slice.Spec.Devices) > 0 {
				reporters++
			}
		}
		if reporters != n {
			return fmt.Errorf("%d slices have devices", reporters)
		}
		return nil
	})
}

// settle waits until the nodes write nothing any more.
func (b *bench) settle(ctx context.Context) error {
	last := -1.0
	since := time.Now()
	return await(ctx, "the nodes write nothing more", func() error {
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("they wrote a moment ago")
		}
		since = time.Now()
		var now cost
		if err := b.requests(ctx, &now); err != nil {
			return err
		}
		wrote := now.Writes - last
		last = now.Writes
		if wrote > 0 {
			return fmt.Errorf("%v writes", wrote)
		}
		return nil
	})
}

// measureClaims takes slots one after the other, each for another node, as that
// node's kubecri does it, and releases them.
func (b *bench) measureClaims(ctx context.Context, r *result) error {
	known, stop, err := b.watchClaims(ctx)
	if err != nil {
		return err
	}
	defer stop()
	slots := b.slotNames()
	for done := 0; done < b.options.claims; {
		n := min(b.options.claims-done, len(slots))
		var all []*held
		claim, err := b.measure(ctx, func() error {
			for i := range n {
				begin := time.Now()
				h, err := b.take(ctx, b.nodes[(done+i)*len(b.nodes)/b.options.claims], slots[i], done+i)
				if err != nil {
					return err
				}
				r.Taken = append(r.Taken, time.Since(begin))
				if err := known(ctx, slots[i], true); err != nil {
					return err
				}
				r.Told = append(r.Told, time.Since(begin))
				all = append(all, h)
			}
			return nil
		})
		if err != nil {
			return err
		}
		release, err := b.measure(ctx, func() error {
			for i, h := range all {
				h.node.runtime.clear()
				h.node.claims.Removed(h.container)
				if err := known(ctx, slots[i], false); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.Claim, r.Release = r.Claim.plus(claim), r.Release.plus(release)
		done += n
	}
	return nil
}

// held is a slot that a node's container uses.
type held struct {
	node      *node
	container string
}

func (b *bench) slotNames() (names []slot.Name) {
	for i := range b.shared {
		hash := slot.InstanceHash(fmt.Sprintf("camera-%d", i), true, "", slot.ShortHash)
		for index := range capacity {
			names = append(names, slot.Name{Instance: slot.InstanceName("cameras", hash), Index: index})
		}
	}
	return names
}

// take claims a slot for a pod of the node.
func (b *bench) take(ctx context.Context, n *node, name slot.Name, i int) (*held, error) {
	uid, id := fmt.Sprintf("00000000-0000-0000-0000-%012d", i), fmt.Sprintf("container-%d", i)
	taken, err := n.claims.Take(ctx, claims.Request{
		Pod: claims.Pod{Namespace: namespace, Name: fmt.Sprintf("pod-%d", i), UID: uid}, Container: "app", Sandbox: "sandbox-" + id,
		Grants:    []assignment.Grant{{Resource: "cameras", Ordinal: 0, Slot: name}},
		Requested: map[string]int64{"cameras": 1},
	})
	if err != nil {
		return nil, fmt.Errorf("take slot %s on %s: %w", name, n.name, err)
	}
	n.runtime.add(container(n.name, id, uid, name))
	taken.Created(id)
	return &held{node: n, container: id}, nil
}

// measureRestart ends all nodes and starts them again, until they have synced.
func (b *bench) measureRestart(ctx context.Context, r *result) error {
	b.endNodes()
	if err := b.quiet(ctx); err != nil {
		return err
	}
	var err error
	r.Restart, err = b.measure(ctx, func() error { return b.startNodes(ctx, r.Nodes) })
	slices.Sort(r.Taken)
	slices.Sort(r.Told)
	return err
}
