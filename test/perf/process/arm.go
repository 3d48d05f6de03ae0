package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// size is what the clusters hold, and how much is measured.
type size struct{ nodes, slots, pods, rounds, further, furtherDRA int }

func (s size) validate() error {
	most := s.pods + s.rounds*max(s.further, s.furtherDRA)
	if s.nodes < 1 || s.slots < slotsPerInstance || s.slots%slotsPerInstance != 0 ||
		min(s.pods, s.rounds, s.further, s.furtherDRA) < 1 || most > s.nodes*s.slots {
		return fmt.Errorf("%d nodes with %d slots each for %d pods and %d rounds of %d or %d further ones: want an even number of slots for each node, pods in each round, and as many slots in all as pods",
			s.nodes, s.slots, s.pods, s.rounds, s.further, s.furtherDRA)
	}
	return nil
}

// arm is a cluster whose scheduler is measured, and a way to give devices to pods.
type arm struct {
	name     string
	resource v1.ResourceName
	// onNode: nodes report the resource in their status.
	onNode bool
	// ours: DeviceSlices, and our scheduler.
	ours bool
	// dra: ResourceSlices and a DeviceClass.
	dra bool
	// widgets: the nodes have those of the example plugin, in place of slots, and our scheduler.
	widgets bool
	// remote: the plugin is a process of its own, in place of a .so file.
	remote bool

	size
	profiles string
	cluster  *cluster.Cluster
	program  string // the scheduler's file
	plugin   widgetPlugin
	client   *kubernetes.Clientset
	config   *rest.Config
	created  int        // pods so far
	running  *scheduler // while its speed is measured

	scheduled memory   // after it has bound the first pods
	restarted []memory // started anew
	speeds    []speed
}

// chosen returns the arms of these names, in their order.
func chosen(names string) ([]*arm, error) {
	all := []*arm{
		{name: "plain", resource: "example.com/" + kind, onNode: true},
		{name: "ours", resource: assignment.ResourcePrefix + kind, onNode: true, ours: true},
		{name: "dra", resource: "example.com/" + kind, dra: true},
		{name: "so", resource: v1.ResourceName(widget.Resource), onNode: true, widgets: true},
		{name: "grpc", resource: v1.ResourceName(widget.Resource), onNode: true, widgets: true, remote: true},
	}
	var arms []*arm
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(a *arm) bool { return a.name == name })
		if i < 0 || slices.Contains(arms, all[i]) {
			return nil, fmt.Errorf("-arms=%s: %q is none of plain, ours, dra, so and grpc, or there twice", names, name)
		}
		arms = append(arms, all[i])
	}
	return arms, nil
}

// up starts the arm's API server, and installs its scheduler as the program.
func (a *arm) up(ctx context.Context, program string) error {
	var err error
	a.cluster, err = cluster.Up(ctx, cluster.Config{Name: "bench-" + a.name, Stock: a.stock(), APIOnly: true})
	if err != nil {
		return err
	}
	err = a.install(ctx, program)
	if err == nil && a.widgets {
		err = a.installPlugin(ctx, program+"-plugins")
	}
	if err != nil {
		return errors.Join(err, a.down(ctx))
	}
	return nil
}

// stock reports whether the scheduler is the stock one.
func (a *arm) stock() bool { return !a.ours && !a.widgets }

func (a *arm) down(ctx context.Context) error {
	return errors.Join(a.plugin.stop(), a.cluster.Down(context.WithoutCancel(ctx)))
}

// prepare creates all objects, and has the scheduler bind the first pods.
func (a *arm) prepare(ctx context.Context) error {
	var err error
	if a.config, err = a.cluster.RESTConfig(); err != nil {
		return err
	}
	a.config.QPS = -1
	core := rest.CopyConfig(a.config)
	core.ContentType = "application/vnd.kubernetes.protobuf"
	if a.client, err = kubernetes.NewForConfig(core); err != nil {
		return err
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := a.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := create(ctx, a.nodes, a.createNode); err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	if err := a.createDevices(ctx); err != nil {
		return fmt.Errorf("create devices: %w", err)
	}
	if err := a.createPods(ctx, a.pods); err != nil {
		return err
	}
	progress("%s: %d nodes and %d pods are created", a.name, a.nodes, a.pods)
	return a.bindFirst(ctx)
}

// bindFirst starts the scheduler and measures its memory once it has bound all pods.
func (a *arm) bindFirst(ctx context.Context) (err error) {
	s, err := a.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	begin := time.Now()
	if err := s.await(ctx, "it knows all pods as bound", a.knowsAll); err != nil {
		return err
	}
	// It counts a pod before the API does.
	if err := s.await(ctx, "all pods are bound", a.checkBound); err != nil {
		return err
	}
	progress("%s: all pods are bound after %s", a.name, time.Since(begin).Round(time.Second))
	a.scheduled, err = s.settled(ctx)
	return err
}

// restart starts the scheduler anew and measures its memory once it knows everything.
func (a *arm) restart(ctx context.Context) (err error) {
	s, err := a.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.await(ctx, "it knows all nodes, pods and slots", a.knowsAll); err != nil {
		return err
	}
	m, err := s.settled(ctx)
	if err != nil {
		return err
	}
	a.restarted = append(a.restarted, m)
	progress("%s: %.0f MiB anonymous, %.0f MiB heap", a.name, m.anonymous/(1<<20), m.heap/(1<<20))
	return a.profile(ctx, s, "heap", "/debug/pprof/heap?gc=1")
}
