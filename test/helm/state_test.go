package helm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/kubeslot/kubeslot/test/helm/rig"
)

// state is everything of a cluster that may not change for good when Kubeslot comes and goes:
// all objects of all kinds, what the nodes advertise and say, and the nodes' folders.
type state map[string]string

// state looks at everything but what comes and goes by itself.
func (in *install) state() state {
	in.Helper()
	s := state{}
	config, err := in.RESTConfig()
	in.check(err)
	config.QPS, config.Burst = 200, 200
	client, err := metadata.NewForConfig(config)
	in.check(err)
	_, lists, err := in.kube.Discovery().ServerGroupsAndResources()
	in.check(err)
	kinds := 0
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		in.check(err)
		for _, r := range list.APIResources {
			if r.Name == "events" {
				continue
			}
			kinds++
			objects, err := client.Resource(gv.WithResource(r.Name)).List(in.ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // its CustomResourceDefinition was deleted after the kinds were listed
			}
			in.check(err)
			for _, o := range objects.Items {
				s[fmt.Sprintf("%s %s/%s", r.Kind, o.Namespace, o.Name)] = "there"
			}
		}
	}
	if kinds < 50 {
		in.Fatalf("the API server has only %d kinds", kinds)
	}
	nodes, err := in.kube.CoreV1().Nodes().List(in.ctx, metav1.ListOptions{})
	in.check(err)
	for _, n := range nodes.Items {
		for k, v := range n.Annotations {
			s["node "+n.Name+", annotation "+k] = v
		}
		for k, v := range n.Labels {
			s["node "+n.Name+", label "+k] = v
		}
		for k := range n.Status.Capacity {
			s["node "+n.Name+", capacity "+string(k)] = "there"
		}
		for k := range n.Status.Allocatable {
			s["node "+n.Name+", allocatable "+string(k)] = "there"
		}
		for _, c := range n.Status.Conditions {
			s["node "+n.Name+", condition "+string(c.Type)] = "there"
		}
	}
	for _, n := range in.Nodes() {
		for _, folder := range []string{"/var/lib", "/var/log", "/run", "/run/nri", "/run/containerd", "/etc", "/opt"} {
			out, err := rig.InNode(in.ctx, n, "ls", "-A", folder)
			in.check(err)
			for name := range strings.Lines(out) {
				name = strings.TrimSpace(name)
				// Of folders that all nodes of the machine have, and others use, our own names.
				private := folder == "/var/log" || folder == "/run/nri" || folder == "/run/containerd"
				if private || name == "udev" || slices.ContainsFunc([]string{"kubecri", "kubeslot", "akri", "cdi"}, func(word string) bool { return strings.Contains(name, word) }) {
					s["node "+n.Name+", "+folder+"/"+name] = "there"
				}
			}
		}
	}
	return s
}

// expect waits until the state is again what it was, but for names that hold one of the
// words: some of it goes by and by.
func (in *install) expect(before state, but ...string) {
	in.Helper()
	but = append(but, itself...)
	in.await("everything to be as it was", func() (bool, string) {
		after := in.state()
		names := map[string]bool{}
		for _, s := range []state{before, after} {
			for name := range s {
				names[name] = true
			}
		}
		var differ []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if strings.HasSuffix(name, ", /run/udev") && after[name] == "" {
				continue // empty folders go: nobody knows who made this one
			}
			if before[name] != after[name] && !slices.ContainsFunc(but, func(word string) bool { return strings.Contains(name, word) }) {
				differ = append(differ, fmt.Sprintf("%s was %q and is %q", name, before[name], after[name]))
			}
		}
		return len(differ) == 0, "\n" + strings.Join(differ, "\n")
	})
}

// itself is what Kubernetes makes for a namespace, and for what runs.
var itself = []string{
	"Namespace /" + namespace, "ServiceAccount " + namespace + "/default", "ConfigMap " + namespace + "/kube-root-ca.crt", "ControllerRevision default/",
	"/run/containerd/runc", "/run/containerd/s", "/run/containerd/io.containerd", "/run/containerd/fifo",
	"IPAddress ", "/run/netns",
}
