package check

import (
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
)

func TestKubelet(t *testing.T) {
	const listen, from = "unix:///run/kubecri/kubecri.sock", "/var/lib/kubelet/config.yaml"
	for name, test := range map[string]struct {
		kubelet Kubelet
		well    bool
		says    []string
	}{
		"uses kubecri":    {Kubelet{PID: 7, Endpoint: listen, From: from}, true, []string{"ok    kubelet    process 7 uses " + listen}},
		"in other words":  {Kubelet{PID: 7, Endpoint: "/var/run/kubecri/kubecri.sock", From: from, Other: listen}, true, []string{"ok    kubelet"}},
		"past it":         {Kubelet{PID: 7, Endpoint: "unix:///run/containerd/containerd.sock", From: from}, false, []string{"FAIL  kubelet", "process 7 uses unix:///run/containerd/containerd.sock, as " + from + " says", "without their devices", "kubecri install"}},
		"not restarted":   {Kubelet{PID: 7, Endpoint: listen, From: from, Changed: from}, false, []string{"FAIL  kubelet", "has not read " + from, "Restart it"}},
		"after upgrades":  {Kubelet{PID: 7, Endpoint: listen, From: from, Other: "unix:///run/containerd/containerd.sock"}, false, []string{"FAIL  kubelet", "instance-config.yaml says unix:///run/containerd/containerd.sock", "kubeadm upgrade"}},
		"in a container":  {Kubelet{}, true, []string{"note  kubelet", "no process"}},
		"not to be known": {Kubelet{PID: 7, Err: errors.New("permission denied")}, false, []string{"FAIL  kubelet", "permission denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := setup(nil, "")
			c.Kubelet, c.Listen = &test.kubelet, listen
			wantReport(t, c, test.well, test.says)
		})
	}
}

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		kubelet, server string
		well            bool
		says            string
	}{
		{"v1.37.2", "v1.37.2", true, "ok    versions   kubecri v0.0.0-dev, kubelet v1.37.2"},
		{"v1.34.9+k3s1", "v1.37.0-eks-1", true, "kubelet v1.34.9+k3s1"},
		{"v1.38.0", "v1.37.2", true, "newer than the API server"},
		{"v1.33.0", "v1.37.2", true, "more than 3 minor versions older"},
		{"v1.33.0", "v1.35.0", true, "1.34 and newer"},
		{"v1.33.0", "v1.33.5", true, "Kubeslot is made for API servers 1.34 and newer, and this one is v1.33.5"},
		{"odd", "v1.37.2", true, `"odd" cannot be read`},
	} {
		c, kube := setup(nil, "")
		node := nodeA()
		node.Status.NodeInfo.KubeletVersion = test.kubelet
		if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			t.Fatal(err)
		}
		kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: test.server}
		wantReport(t, c, test.well, []string{test.says})
	}
	c, _ := setup(nil, "")
	c.Node = "other"
	wantReport(t, c, false, []string{"FAIL  versions", "--node-name"})
}

// The kubelet's own identity may see its own pods and node alone, and writes no Leases.
func TestPermissionsOfAKubelet(t *testing.T) {
	c, kube := setup(nil, "")
	allow(kube, func(a *authorizationv1.ResourceAttributes) bool {
		switch a.Resource {
		case "pods":
			return a.FieldSelector != nil && a.FieldSelector.Requirements[0].Values[0] == "node-a"
		case "nodes": // as the Node authorizer has it
			return a.Name == "node-a"
		case "leases":
			return a.Verb != "create" && a.Verb != "update"
		}
		return true
	})
	wantReport(t, c, true, []string{"note  RBAC       lacks: create leases, update leases; so this node does not discover for others", "ok    RBAC"})
}
