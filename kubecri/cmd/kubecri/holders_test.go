package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/assignment"
	ourfake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
)

const widgets = `{"podname":"p","nodename":"node-a","runningcontainer":{
	"main":{"allocatefrom":{"want/0":"board/0/widget/1","akri.sh/cam/0":"cam-a1-0"}},
	"slots":{"allocatefrom":{"akri.sh/cam/0":"cam-a1-1"}},"none":{}}}`

func podWith(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1",
			Annotations: map[string]string{assignment.Annotation: widgets, assignment.HolderAnnotation: "u1"}},
		Spec: corev1.PodSpec{NodeName: "node-a"},
	}
	change(pod)
	return pod
}

// Which containers hold devices of plugins: those that the scheduler assigned some, until their pod
// has ended.
func TestHolders(t *testing.T) {
	const main = "[ns/p u1 main map[want/0:board/0/widget/1]]"
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"running":                   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, main},
		"about to be deleted":       {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, main},
		"succeeded":                 {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "[]"},
		"failed":                    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "[]"},
		"its author's own words":    {func(p *corev1.Pod) { delete(p.Annotations, assignment.HolderAnnotation) }, "[]"},
		"another pod's":             {func(p *corev1.Pod) { p.UID = "u2" }, "[]"},
		"another node's":            {func(p *corev1.Pod) { p.Spec.NodeName = "node-b" }, "[]"},
		"no assignment":             {func(p *corev1.Pod) { p.Annotations = nil }, "[]"},
		"one that cannot be read":   {func(p *corev1.Pod) { p.Annotations[assignment.Annotation] = "{" }, "[]"},
		"not started, but assigned": {func(*corev1.Pod) {}, main},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, h := range holdersOf(podWith(test.change)) {
				got = append(got, fmt.Sprint(h.GetNamespace(), "/", h.GetPod(), " ", h.GetUid(), " ", h.GetContainer(),
					" ", h.GetAllocateFrom()))
			}
			if got := fmt.Sprint(got); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// Holders are not known before the node's pods are, and each change of them is followed.
func TestFollowHolders(t *testing.T) {
	kube := fake.NewClientset(podWith(func(*corev1.Pod) {}))
	c := &cluster{node: "node-a", Informers: informers.New(kube, ourfake.NewSimpleClientset(), "node-a")}
	if _, ok := c.holders(); ok {
		t.Error("holders are known before any pod is")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed := make(chan struct{}, 100)
	followed := make(chan struct{})
	go func() { defer close(followed); c.followHolders(ctx, func() { changed <- struct{}{} }) }()
	c.Start(ctx.Done())
	held := func(n int) {
		t.Helper()
		await.That(t, fmt.Sprint(n, " holders"), func() (bool, string) {
			all, ok := c.holders()
			return ok && len(all) == n, fmt.Sprint(all)
		})
		<-changed
	}
	held(1)
	<-followed
	for len(changed) > 0 {
		<-changed
	}
	pods := kube.CoreV1().Pods("ns")
	failed := podWith(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	if _, err := pods.Update(ctx, failed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	held(0)
}

// A required plugin that is away is named in /readyz, as advice: other containers can be created.
func TestReadyzNamesPluginsThatAreAway(t *testing.T) {
	c, err := newCluster(unreachableAPI(t, t.TempDir()), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := soplugins.New(soplugins.Config{Node: "node-a", Holders: c.holders,
		Remote: remote.Options{Sockets: t.TempDir(), Timeout: time.Second,
			Policies: map[string]string{"gone": remote.Required, "optional": remote.Ignore}}})
	if err != nil {
		t.Fatal(err)
	}
	err = devicePluginsAdvice(t.Context(), t, &node{cluster: c, plugins: plugins})
	if err == nil || !strings.Contains(err.Error(), `plugin "gone" is away since`) || strings.Contains(err.Error(), "optional") {
		t.Error(err)
	}
}
