package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// What the API server itself refuses of Configurations, and the messages that it gives.
func TestConfigurationValidation(t *testing.T) {
	r := newRig(t)
	apply := func(name, spec string) error {
		_, err := r.Kubectl(t.Context(), "apply", "-f", write(t, "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata:\n  name: "+name+"\nspec:\n  "+strings.TrimSpace(spec)+"\n"))
		return err
	}
	for name, test := range map[string]struct{ spec, want string }{
		"capacity-zero":               {"capacity: 0\n  discoveryHandler: {name: debugEcho}", "spec.capacity"},
		"capacity-10001":              {"capacity: 10001\n  discoveryHandler: {name: debugEcho}", "less than or equal to 10000"},
		"no-handler":                  {"capacity: 1", "discoveryHandler"},
		"Upper":                       {"discoveryHandler: {name: debugEcho}", "name"},
		"scope":                       {"uniqueScope: Rack\n  discoveryHandler: {name: debugEcho}", "uniqueScope"},
		"value-and-from":              {"discoveryHandler: {name: debugEcho, discoveryProperties: [{name: a, value: b, valueFrom: {secretKeyRef: {name: s, key: k}}}]}", "exactly one of value and valueFrom"},
		"no-value":                    {"discoveryHandler: {name: debugEcho, discoveryProperties: [{name: a}]}", "exactly one of value and valueFrom"},
		"dots.in.name":                {"discoveryHandler: {name: debugEcho}", "DNS label"},
		"x" + strings.Repeat("y", 60): {"discoveryHandler: {name: debugEcho}", "56 characters"},
		"digits":                      {"instanceNameDigits: 8\n  discoveryHandler: {name: debugEcho}", "instanceNameDigits"},
		"x" + strings.Repeat("y", 50): {"instanceNameDigits: 12\n  discoveryHandler: {name: debugEcho}", "50 characters"},
	} {
		if err := apply(name, test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.want)
		}
	}
	// Akri's published debug echo Configuration applies as it is.
	const name = "akri-debug-echo"
	r.check(apply(name, `
  discoveryHandler:
    name: debugEcho
    discoveryDetails: |+
      descriptions:
      - akri0
  brokerSpec:
    brokerPodSpec:
      containers:
      - name: akri-debug-echo-broker
        image: "nginx:stable-alpine"
        resources:
          requests:
            "{{PLACEHOLDER}}" : "1"
            memory: 10Mi
            cpu: 10m
          limits:
            "{{PLACEHOLDER}}" : "1"
            memory: 30Mi
            cpu: 29m
  instanceServiceSpec:
    type: ClusterIP
    ports: [{name: http, port: 6052, protocol: TCP, targetPort: 6052}]
  brokerProperties: {}
  capacity: 2`))
	t.Cleanup(func() {
		r.check(r.kubeslot.AkriV0().Configurations("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
	image, err := r.Kubectl(t.Context(), "get", "configuration", name, "-o", "jsonpath={.spec.brokerSpec.brokerPodSpec.containers[0].image}")
	r.check(err)
	if image != "nginx:stable-alpine" {
		t.Errorf("the broker's pod spec was not kept: %q", image)
	}
	for _, spec := range []string{`{"discoveryHandler":{"name":"udev"}}`, `{"instanceNameDigits":12}`} {
		if err := r.patch(name, `{"spec":`+spec+`}`); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
			t.Errorf("changing to %s: %v", spec, err)
		}
	}
}

// What the API server itself refuses of slices and claims, whoever writes them.
func TestSliceAndClaimValidation(t *testing.T) {
	r := newRig(t)
	held := r.loot() + "-0"
	api := r.kubeslot.KubeslotV1alpha1()
	refused := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", what, err, want)
		}
	}
	many := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: nodeA + "-many"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: nodeA}}
	for i := range v1alpha1.MaxDevices + 1 {
		id := fmt.Sprint("many", i)
		many.Spec.Devices = append(many.Spec.Devices, v1alpha1.Device{ID: id, Shared: true, Hash: slot.InstanceHash(id, true, nodeA, slot.ShortHash),
			Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "many"}})
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(s *v1alpha1.DeviceSlice) error {
		_, err := api.DeviceSlices().Create(t.Context(), s, dryRun)
		return err
	}
	refused("257 devices", "must have at most 256 items", create(many))
	many.Spec.Devices = many.Spec.Devices[1:]
	r.check(create(many))
	many.Spec.Devices[0].Hash = "8120F"
	refused("no hash", "spec.devices[0].hash", create(many))
	long := many.DeepCopy()
	long.Spec.Devices = many.Spec.Devices[1:2]
	long.Spec.Devices[0].Properties = map[string]string{"URL": strings.Repeat("x", v1alpha1.MaxDeviceBytes)}
	r.check(create(long))
	long.Spec.Devices[0].Properties["URL"] += "x"
	refused("a property of 65537 bytes", "spec.devices[0].properties.URL: Too long", create(long))

	spec := v1alpha1.SlotClaimSpec{NodeName: nodeA, Level: v1alpha1.ConfigurationLevel, Holder: "x"}
	for _, name := range []string{"valid-8120fe", "valid-8120fe-00", "valid-8120fe-10000"} {
		_, err := api.SlotClaims().Create(t.Context(), &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, dryRun)
		refused(name, "must be a slot's", err)
	}
	_, err := api.SlotClaims().Create(t.Context(), &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: held}, Spec: spec}, metav1.CreateOptions{})
	refused("a slot that is taken", "already exists", err)
	_, err = api.SlotClaims().Patch(t.Context(), held, types.MergePatchType, []byte(`{"spec":{"nodeName":"node-b"}}`), metav1.PatchOptions{})
	refused("another node for a claim", "cannot be changed", err)

	list, err := api.DeviceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeA})
	r.check(err)
	if len(list.Items) != 1 || list.Items[0].Name != "node-a-0" {
		t.Fatalf("the field selector spec.nodeName selects %v", list.Items)
	}
	_, err = api.DeviceSlices().Patch(t.Context(), list.Items[0].Name, types.MergePatchType, []byte(`{"spec":{"nodeName":"node-b"}}`), metav1.PatchOptions{})
	refused("another node for a slice", "nodeName cannot be changed", err)
}

// The policy for namespaces with quotas is in force where the namespace's label asks for it,
// and nowhere else.
func TestInstanceRequestsForbidden(t *testing.T) {
	r := newRig(t)
	const label, labelled, file = "kubeslot.io/instance-requests", "team-a", "quota/instance-requests.yaml"
	_, err := r.Kubectl(t.Context(), "apply", "-f", file)
	r.check(err)
	t.Cleanup(func() {
		_, err := r.Kubectl(context.Background(), "delete", "-f", file)
		r.check(err)
	})
	try := func(namespace, requested string) error {
		r.serviceAccount(namespace, "default")
		limits := corev1.ResourceList{corev1.ResourceName("akri.sh/" + requested): resource.MustParse("1")}
		_, err := r.kube.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: limits}}}}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	setLabel := func(value string) {
		t.Helper()
		_, err := r.kube.CoreV1().Namespaces().Patch(t.Context(), labelled, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":`+value+`}}}`), metav1.PatchOptions{})
		r.check(err)
	}
	r.serviceAccount(labelled, "default")
	setLabel(`"forbidden"`)
	r.await("a pod that requests an Instance to be refused in the labelled namespace", func() (bool, string) {
		err := try(labelled, "cameras-f30c78")
		return strings.Contains(fmt.Sprint(err), "may not request one device, such as akri.sh/cameras-f30c78"), fmt.Sprint(err)
	})
	if err := try(labelled, "cameras"); err != nil {
		t.Errorf("a pod that requests a Configuration's devices is refused: %v", err)
	}
	if err := try("default", "cameras-f30c78"); err != nil {
		t.Errorf("a pod that requests an Instance is refused in a namespace without the label: %v", err)
	}
	for _, value := range []string{`"allowed"`, "null"} {
		setLabel(value)
		r.await("the pod to be accepted with the label "+value, func() (bool, string) {
			err := try(labelled, "cameras-f30c78")
			return err == nil, fmt.Sprint(err)
		})
	}
}
