package view

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// deployed is a cluster with all of deploy/.
func deployed(t *testing.T) *Cluster {
	t.Helper()
	want, err := wanted()
	if err != nil {
		t.Fatal(err)
	}
	if len(want.definitions) != 4 || len(want.roles) < 5 {
		t.Fatalf("deploy/ has %d definitions and %d ClusterRoles", len(want.definitions), len(want.roles))
	}
	c := &Cluster{Version: "v1.37.2", Policies: slices.Sorted(maps.Keys(policies)), Definitions: map[string]*unstructured.Unstructured{},
		Roles: map[string][]rbacv1.PolicyRule{}, Bound: slices.Sorted(maps.Keys(roles))}
	for _, d := range want.definitions {
		c.Definitions[d.GetName()] = d.DeepCopy()
	}
	for name := range roles {
		c.Roles[name] = want.roles[name]
	}
	return c
}

// schema is that of the first version of a definition.
func schema(t *testing.T, c *Cluster, definition string, fields ...string) map[string]any {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(c.Definitions[definition].Object, "spec", "versions")
	if err != nil || len(versions) == 0 {
		t.Fatalf("%s has no versions: %v", definition, err)
	}
	if err := unstructured.SetNestedSlice(c.Definitions[definition].Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	at := c.Definitions[definition].Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	for _, field := range append([]string{"schema", "openAPIV3Schema"}, fields...) {
		at = at[field].(map[string]any)
	}
	return at
}

func TestExamineTheCluster(t *testing.T) {
	const configurations = "configurations.akri.sh"
	for name, tc := range map[string]struct {
		change               func(t *testing.T, o *Objects)
		object, reason, want string
	}{
		"all is there": {},
		"an old API server": {object: "cluster", reason: "OldVersion", want: "v1.33.9, and Kubeslot works from 1.34 on",
			change: func(_ *testing.T, o *Objects) { o.Cluster.Version = "v1.33.9" }},
		"a policy that is missing": {object: "validatingadmissionpolicy/kubeslot-assignment", reason: "NoPolicy", want: "who may update a pod can give it slots. Apply deploy/policies, or run helm upgrade",
			change: func(_ *testing.T, o *Objects) {
				o.Cluster.Policies = slices.DeleteFunc(o.Cluster.Policies,
					func(name string) bool { return name == "kubeslot-assignment" })
			}},
		"a definition that is missing": {object: "customresourcedefinition/slotclaims.kubeslot.io", reason: "NoDefinition", want: "apply deploy/crds, or run helm upgrade",
			change: func(_ *testing.T, o *Objects) { delete(o.Cluster.Definitions, "slotclaims.kubeslot.io") }},
		"an old definition": {object: "customresourcedefinition/" + configurations, reason: "OldDefinition", want: "it does not know spec.discovery, spec.uniqueScope: it is Akri's, or an older Kubeslot's, and the API server drops",
			change: func(t *testing.T, o *Objects) {
				fields := schema(t, o.Cluster, configurations, "properties", "spec", "properties")
				delete(fields, "discovery")
				delete(fields, "uniqueScope")
			}},
		"a definition that lacks an element's field": {object: "customresourcedefinition/deviceslices.kubeslot.io", reason: "OldDefinition", want: "it does not know spec.devices[].hash",
			change: func(t *testing.T, o *Objects) {
				delete(schema(t, o.Cluster, "deviceslices.kubeslot.io", "properties", "spec", "properties", "devices", "items", "properties"), "hash")
			}},
		"a definition that keeps what it does not know": {change: func(t *testing.T, o *Objects) {
			spec := schema(t, o.Cluster, configurations, "properties", "spec")
			spec["properties"], spec["x-kubernetes-preserve-unknown-fields"] = map[string]any{}, true
		}},
		"a definition of other versions": {object: "customresourcedefinition/" + configurations, reason: "OldDefinition", want: "it does not serve version v0",
			change: func(_ *testing.T, o *Objects) {
				o.Cluster.Definitions[configurations].Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["served"] = false
			}},
		"no role of the scheduler": {object: "clusterrole/kubeslot:kube-scheduler", reason: "NoRole", want: "so that the scheduler does not see the devices",
			change: func(_ *testing.T, o *Objects) { delete(o.Cluster.Roles, "kubeslot:kube-scheduler") }},
		"no role of the scheduler, and kubelets choose slots": {change: func(_ *testing.T, o *Objects) {
			delete(o.Cluster.Roles, "kubeslot:kube-scheduler")
			for i := range o.Nodes {
				o.Nodes[i].Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}
			}
		}},
		"no role of kubecri, and nodes report": {change: func(_ *testing.T, o *Objects) { delete(o.Cluster.Roles, "kubeslot:kubecri") }},
		"no role of kubecri": {object: "clusterrole/kubeslot:kubecri", reason: "NoRole", want: "so that no node can report devices",
			change: func(_ *testing.T, o *Objects) {
				delete(o.Cluster.Roles, "kubeslot:kubecri")
				o.Slices = nil
			}},
		"no role of the controller": {object: "clusterrole/kubeslot:controller", reason: "NoRole", want: "so that nobody writes Instances",
			change: func(_ *testing.T, o *Objects) {
				delete(o.Cluster.Roles, "kubeslot:controller")
				o.Instances = nil
			}},
		"an old role": {object: "clusterrole/kubeslot:kubecri", reason: "OldRole", want: "it lacks create slotclaims.kubeslot.io, delete slotclaims.kubeslot.io, patch slotclaims.kubeslot.io, which kubecri needs",
			change: func(_ *testing.T, o *Objects) {
				rules := slices.Clone(o.Cluster.Roles["kubeslot:kubecri"])
				for i, r := range rules {
					if slices.Contains(r.Resources, "slotclaims") {
						rules[i].Verbs = []string{"get", "list", "watch"}
					}
				}
				o.Cluster.Roles["kubeslot:kubecri"] = rules
			}},
		"a role of one's own with more": {change: func(_ *testing.T, o *Objects) {
			o.Cluster.Roles["kubeslot:kubecri"] = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		}},
		"a role that nobody has": {object: "clusterrole/kubeslot:controller", reason: "RoleNotBound", want: "no ClusterRoleBinding gives it to anybody",
			change: func(_ *testing.T, o *Objects) {
				o.Cluster.Bound = slices.DeleteFunc(o.Cluster.Bound, func(name string) bool { return name == "kubeslot:controller" })
			}},
		"an old kubelet": {object: "node/b", reason: "OldVersion", want: "its kubelet is v1.33.9, and Kubeslot works from 1.34 on", change: kubelet("v1.33.9")},
		"a kubelet that is too far behind": {object: "node/b", reason: "VersionSkew", want: "v1.34.1+k3s1, more than 3 minor versions older than the API server v1.38.0",
			change: func(t *testing.T, o *Objects) {
				kubelet("v1.34.1+k3s1")(t, o)
				o.Cluster.Version = "v1.38.0"
			}},
		"a kubelet that is newer":                  {object: "node/b", reason: "VersionSkew", want: "v1.38.0, newer than the API server v1.37.2", change: kubelet("v1.38.0")},
		"a kubelet as old as may be":               {change: kubelet("v1.34.0")},
		"a kubelet that says nothing one can read": {change: kubelet("devel")},
		"containers past kubecri": {object: "node/b", reason: "CreatedPastKubecri", want: "the last seen is",
			change: condition("kubeslot.io/ContainersWithoutDevices", "CreatedPastKubecri", corev1.ConditionTrue)},
		"no containers past kubecri": {change: condition("kubeslot.io/ContainersWithoutDevices", "AllThroughKubecri", corev1.ConditionFalse)},
		"a node's own trouble":       {change: condition(corev1.NodeDiskPressure, "Full", corev1.ConditionTrue)},
		"an annotation that is left": {object: "node/b", reason: "LeftOver", want: "it has the annotation KubeDevice/DeviceInfo, the label kubeslot.io/mode, the condition kubeslot.io/ContainersWithoutDevices of a kubecri that does not run there: run `kubecri cleanup`",
			change: func(t *testing.T, o *Objects) {
				condition("kubeslot.io/ContainersWithoutDevices", "AllThroughKubecri", corev1.ConditionFalse)(t, o)
				o.Slices, o.Nodes[1].Annotations, o.Nodes[1].Labels = o.Slices[:1], map[string]string{assignment.Annotation: "{}"}, map[string]string{v1alpha1.ModeLabel: "nri"}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			o.Cluster = deployed(t)
			if tc.change != nil {
				tc.change(t, &o)
			}
			findings := New(o).Examine(now)
			if tc.object == "" {
				if len(findings) != 0 {
					t.Errorf("Examine() = %+v, want nothing", findings)
				}
				return
			}
			if !slices.ContainsFunc(findings, func(f Finding) bool {
				return f.Object == tc.object && f.Reason == tc.reason && strings.Contains(f.Problem, tc.want)
			}) {
				t.Errorf("Examine() = %+v, want %s of %s: %q", findings, tc.reason, tc.object, tc.want)
			}
		})
	}
}

func kubelet(version string) func(*testing.T, *Objects) {
	return func(_ *testing.T, o *Objects) { o.Nodes[1].Status.NodeInfo.KubeletVersion = version }
}

func condition(of corev1.NodeConditionType, reason string, status corev1.ConditionStatus) func(*testing.T, *Objects) {
	return func(_ *testing.T, o *Objects) {
		o.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: of, Status: status, Reason: reason, Message: "the last seen is x"}}
	}
}

// A scheduler may be one minor version older than the API server.
func TestAPIServersThatAreNewer(t *testing.T) {
	for server, found := range map[string]bool{"v1.37.2": false, "v1.38.0-gke.1": false, "v1.39.0": true, "v1.36.0": false, "odd": false} {
		var f findings
		(&Cluster{Version: server}).examineVersion(&f, "v1.37.2")
		if got := len(f) == 1 && f[0].Reason == "NewVersion" && strings.Contains(f[0].Problem, "made of Kubernetes v1.37.2"); got != found {
			t.Errorf("API server %s: %+v", server, f)
		}
	}
	var f findings
	if (&Cluster{Version: "v1.37.2"}).examineVersion(&f, "v0.0.0-master+$Format:%H$"); len(f) > 0 { // a build that was told none
		t.Errorf("%+v", f)
	}
}

// A scheduler that is newer than the API server is to behave as one of its version.
func TestSchedulersThatAreNewer(t *testing.T) {
	for name, tc := range map[string]struct {
		server, of string
		args       []string
		found      bool
	}{
		"without the flag":   {"v1.34.4", "kube-scheduler", []string{"--leader-elect=true"}, true},
		"with it":            {"v1.34.4", "kube-scheduler", []string{"--emulated-version=1.34"}, false},
		"the same version":   {"v1.37.1", "kube-scheduler", nil, false},
		"another part":       {"v1.34.4", "kubecri", nil, false},
		"an unknown version": {"odd", "kube-scheduler", nil, false},
	} {
		p := part("s", tc.of, "v1", true)
		p.Spec.Containers[0].Args = tc.args
		o := cluster()
		o.Pods, o.Cluster = []corev1.Pod{p}, &Cluster{Version: tc.server}
		var f findings
		New(o).examineEmulation(&f, "v1.37.2")
		if got := len(f) == 1 && f[0].Reason == "NotEmulated" && f[0].Object == "pod/default/s" && strings.Contains(f[0].Problem, "--emulated-version=1.34"); got != tc.found {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Schedulers without Kubeslot's plugins are known by what they do to pods.
func TestExamineSchedulers(t *testing.T) {
	refused := func(message string) corev1.Pod {
		p := pod("waits", "cam", 3)
		p.Spec.SchedulerName = "default-scheduler"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
		return p
	}
	bare := pod("bare", "cam", 1)
	bare.Spec.SchedulerName, bare.Spec.NodeName = "default-scheduler", "a"
	bare.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: long}}
	bare.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError"}}}}
	const plain, ours = "0/2 nodes are available: 2 Insufficient akri.sh/cam. no new claims to deallocate.",
		`0/2 nodes are available: 2 node(s) short of akri.sh/cam: container "main" needs 3; 0 of 4 slots free on 2 Instances, 4 held.`
	const rivals = "two schedulers use that name. Stop the one that is not Kubeslot's"
	for name, tc := range map[string]struct {
		pod            corev1.Pod
		assigned       bool // another pod of the same scheduler name has slots
		devicePlugin   bool
		reason, object string
		want, not      string
	}{
		"it refuses":                      {pod: refused(plain), reason: "StockScheduler", object: "pod/default/waits", want: "counts akri.sh/cam as it counts CPU", not: rivals},
		"it refuses, and another assigns": {pod: refused(plain), assigned: true, reason: "StockScheduler", object: "pod/default/waits", want: rivals},
		"it binds":                        {pod: bare, reason: "NotAssigned", object: "pod/default/bare", want: "does not have Kubeslot's plugins", not: rivals},
		"it binds, and another assigns":   {pod: bare, assigned: true, reason: "NotAssigned", object: "pod/default/bare", want: rivals},
		"Kubeslot's refuses":              {pod: refused(ours)},
		"something else is missing":       {pod: refused("0/2 nodes are available: 2 Insufficient cpu.")},
		"where kubelets choose the slots": {pod: refused(plain), devicePlugin: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			o.Pods = []corev1.Pod{tc.pod}
			if tc.assigned {
				other := bound(t, pod("runs", "cam", 1), "a", "cam", yard+"-0")
				other.Spec.SchedulerName = "default-scheduler"
				o.Pods = append(o.Pods, other)
				o.Claims = []v1alpha1.SlotClaim{claim(yard+"-0", "a", "runs")}
				o.Instances[0].Spec.DeviceUsage = map[string]string{yard + "-0": "C:runs:a"}
			}
			if tc.devicePlugin {
				o.Nodes[0].Labels = map[string]string{v1alpha1.ModeLabel: v1alpha1.ModeDevicePlugin}
			}
			findings := New(o).Examine(now)
			if tc.reason == "" && len(findings) == 0 {
				return
			}
			if len(findings) != 1 || findings[0].Reason != tc.reason || findings[0].Object != tc.object || !strings.Contains(findings[0].Problem, tc.want) ||
				tc.not != "" && strings.Contains(findings[0].Problem, tc.not) {
				t.Errorf("Examine() = %+v, want %s of %s: %q and not %q", findings, tc.reason, tc.object, tc.want, tc.not)
			}
		})
	}
}

// kubecri is a program of Linux.
func TestNodesOfWindowsNeedNoKubecri(t *testing.T) {
	o := healthy(t)
	o.Nodes = append(o.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w",
		Labels: map[string]string{"kubernetes.io/os": "windows"}}, Status: ready(true)})
	if findings := New(o).Examine(now); len(findings) > 0 {
		t.Errorf("Examine() = %+v", findings)
	}
}
