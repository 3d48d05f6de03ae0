package deploy

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// resources is a patch of so many akri.sh resources.
func resources(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"akri.sh/loot-%d":"1"`, i))
	}
	return fmt.Sprintf(`{"status":{"capacity":{%s},"allocatable":{%[1]s}}}`, strings.Join(list, ","))
}

// A token of the ServiceAccount that is no pod's names no node, and writes nothing.
func TestTokenOfNoNode(t *testing.T) {
	r := newRig(t)
	config := r.identity(podToken)
	config.BearerToken = r.token(nil)
	s := r.thief(config)
	for what, err := range map[string]error{
		"a slice": s.report("node-a-77", nodeA, nil),
		"a claim": s.claim(nodeA, "nothing-abcdef-0", nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "only with the token of a pod, which names its node") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.patchNode(nodeA, `{"status":{"capacity":{"akri.sh/x":"1"}}}`, "status"); err == nil || !strings.Contains(err.Error(), "kubecri may change only its own node") {
		t.Errorf("a node's totals: %v", err)
	}
}

// What the policy leaves to kubecri's credential of its own node's status.
func TestKubecriMayAdvertiseOnlyItsOwn(t *testing.T) {
	r := newRig(t)
	s := r.thief(r.identity(certificate))
	_, err := r.kube.CoreV1().Nodes().Patch(r.Context(), nodeA, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"nvidia.com/gpu.count":"8"}},"status":{"capacity":{"example.com/kubelets":"3"},"allocatable":{"example.com/kubelets":"3"}}}`), metav1.PatchOptions{}, "status")
	r.check(err)
	listed := func(names, status string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"status":{"capacity":{%s},"allocatable":{%s}}}`, v1alpha1.PluginResourcesAnnotation, names, status, status)
	}
	for name, text := range map[string]string{
		"another's amount":         `{"status":{"capacity":{"example.com/kubelets":"9"}}}`,
		"another's, listed":        listed("example.com/kubelets", `"example.com/kubelets":"9"`),
		"another's, removed":       `{"status":{"allocatable":{"example.com/kubelets":null}}}`,
		"cpu":                      listed("cpu", `"cpu":"999"`),
		"native":                   listed("x.kubernetes.io/y", `"x.kubernetes.io/y":"1"`),
		"not listed":               `{"status":{"capacity":{"example.com/ours":"1"}}}`,
		"another annotation":       `{"metadata":{"annotations":{"example.com/x":"y"}}}`,
		"a label":                  `{"metadata":{"labels":{"x":"y"}}}`,
		"a label, listed":          fmt.Sprintf(`{"metadata":{"labels":{"x":"y"},"annotations":{%q:"x"}}}`, v1alpha1.PluginLabelsAnnotation),
		"another's label":          fmt.Sprintf(`{"metadata":{"labels":{"nvidia.com/gpu.count":"9"},"annotations":{%q:"nvidia.com/gpu.count"}}}`, v1alpha1.PluginLabelsAnnotation),
		"the kubelet's conditions": `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
	} {
		if err := s.patchNode(nodeA, text, "status"); err == nil || !strings.Contains(err.Error(), "kubecri may") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.patchNode(nodeA, listed("example.com/ours", `"example.com/ours":"1"`), "status"); err != nil {
		t.Errorf("a resource of its own: %v", err)
	}
	if err := s.patchNode(nodeA, fmt.Sprintf(`{"metadata":{"labels":{"nvidia.com/ours":"x"},"annotations":{%q:"nvidia.com/ours"}}}`,
		v1alpha1.PluginLabelsAnnotation), "status"); err != nil {
		t.Errorf("a label of its own: %v", err)
	}
}
