package helm

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// rendered is a pod that some object of the chart leads to.
type rendered struct {
	corev1.Pod
	// phase is when helm creates the object: the hook, or "" for an object of the release.
	phase string
	// creator is the ServiceAccount that creates the pod, "" for a controller of Kubernetes, or helm's user.
	creator string
}

// pods are those of all objects, and the one that the Job kubeslot-uninstall runs on each node.
func (all objects) pods(t *testing.T) []rendered {
	t.Helper()
	var found []rendered
	add := func(o *unstructured.Unstructured, creator string, template any) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace()}}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template.(map[string]any), &pod); err != nil {
			t.Fatalf("%s: %v", key(o), err)
		}
		pod.Name, pod.Namespace = o.GetName(), o.GetNamespace()
		found = append(found, rendered{pod, o.GetAnnotations()["helm.sh/hook"], creator})
	}
	for _, o := range all {
		switch o.GetKind() {
		case "Deployment", "DaemonSet", "Job":
			add(o, "", field(o, "spec", "template"))
		case "Pod":
			add(o, "", map[string]any{"metadata": field(o, "metadata"), "spec": field(o, "spec")})
		case "ConfigMap":
			if text, ok := field(o, "data", "pod.yaml").(string); ok {
				pod := map[string]any{}
				if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
					t.Fatalf("pod.yaml: %v", err)
				}
				node := o.DeepCopy()
				node.SetName("uninstall-node")
				add(node, "kubeslot-uninstall", pod)
			}
		}
	}
	return found
}

// worksOnNodes are the pods that have a node's directories and network.
func worksOnNodes(name string) bool {
	return strings.HasPrefix(name, "kubeslot-plugin-") || slices.Contains(
		[]string{"kubecri", "uninstall-node", "kubeslot-udev-discovery", "kubeslot-onvif-discovery"}, name)
}
