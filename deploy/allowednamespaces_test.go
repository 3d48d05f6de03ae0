package deploy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeslot/kubeslot/controller/dra"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

var (
	createdPods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	resourceClaims = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	claimTemplates = resourceapi.SchemeGroupVersion.WithResource("resourceclaimtemplates")
)

// deviceClass is what the controller makes of a Configuration.
func deviceClass(c *akriv0.Configuration) *resourceapi.DeviceClass {
	name := "akri.sh/" + c.Name
	return &resourceapi.DeviceClass{
		TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "DeviceClass"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        v1alpha1.DeviceClassName(c.Name),
			Labels:      map[string]string{v1alpha1.ConfigurationLabel: c.Name},
			Annotations: dra.NamespaceAnnotations(c),
		},
		Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &name},
	}
}

func cameras(allowed *akriv0.AllowedNamespaces) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "devices", Name: "cameras"},
		Spec:       akriv0.ConfigurationSpec{AllowedNamespaces: allowed},
	}
}

// creation is somebody's request to create an object of that spec.
func creation(of schema.GroupVersionResource, kind string, namespace *corev1.Namespace, spec string) request {
	return request{by: &user.DefaultInfo{Name: "eve"}, resource: of, kind: kind, namespace: namespace,
		object: fmt.Sprintf("metadata: {namespace: %s, name: x}\n%s", namespace.Name, spec)}
}

// Whatever names a DeviceClass for some namespaces is refused in others, and nothing else is.
func TestDevicesForSomeNamespaces(t *testing.T) {
	p := policies(t, "policies/dra.yaml")["kubeslot-allowed-namespaces"]
	const (
		refused = "DeviceClass cameras.slots.kubeslot.io has the devices of Configuration devices/cameras, " +
			"whose spec.allowedNamespaces does not allow namespace shop: use an allowed"
		claim    = "spec: {devices: {requests: [{name: other, exactly: {deviceClassName: gpu}}, {name: a, %s}]}}"
		template = "spec: {spec: {devices: {requests: [{name: a, %s}]}}}"
		pod      = "spec: {containers: [{name: a}, {name: b, resources: %s}]}"
		init     = "spec: {initContainers: [{name: b, resources: %s}], containers: [{name: a}]}"

		ours        = "exactly: {deviceClassName: cameras.slots.kubeslot.io}"
		alternative = "firstAvailable: [{deviceClassName: gpu}, {deviceClassName: cameras.slots.kubeslot.io}]"
		another     = "exactly: {deviceClassName: cameras}"
		gpu         = "exactly: {deviceClassName: gpu}"
		implicit    = "{limits: {deviceclass.resource.kubernetes.io/cameras.slots.kubeslot.io: 1}}"
		others      = "{limits: {akri.sh/lenses: 1, cpu: 1}, claims: [{name: akri.sh/cameras}]}"
	)
	for name, tc := range map[string]struct {
		resource           schema.GroupVersionResource
		kind, object, asks string
		want               string
	}{
		"a claim":                   {resourceClaims, "ResourceClaim", claim, ours, refused},
		"a claim's alternative":     {resourceClaims, "ResourceClaim", claim, alternative, refused},
		"a claim of others":         {resourceClaims, "ResourceClaim", claim, another, ""},
		"a template":                {claimTemplates, "ResourceClaimTemplate", template, ours, refused},
		"a template of others":      {claimTemplates, "ResourceClaimTemplate", template, gpu, ""},
		"a pod's extended resource": {createdPods, "Pod", pod, "{limits: {akri.sh/cameras: 1}}", refused},
		"an init container's":       {createdPods, "Pod", init, "{requests: {akri.sh/cameras: 1}}", refused},
		"the class as a resource":   {createdPods, "Pod", pod, implicit, refused},
		"a pod of others":           {createdPods, "Pod", pod, others, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for namespace, want := range map[string]string{"shop": tc.want, "devices": "", "lab": ""} {
				r := creation(tc.resource, tc.kind, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
					fmt.Sprintf(tc.object, tc.asks))
				r.params = deviceClass(cameras(&akriv0.AllowedNamespaces{Names: []string{"lab"}}))
				expect(t, p, r, want)
				r.params = deviceClass(cameras(nil))
				expect(t, p, r, "")
				if !p.affords(t, r, 1) {
					t.Error("a DeviceClass for all namespaces costs more than its matchCondition")
				}
			}
		})
	}
}

// A claim that is older than its DeviceClass is allocated no device of it, and what has one stays as it is.
func TestClaimsOlderThanTheirDeviceClass(t *testing.T) {
	p := policies(t, "policies/dra.yaml")["kubeslot-allowed-namespaces"]
	const (
		spec = "metadata: {namespace: %s, name: x}\n" +
			"spec: {devices: {requests: [{name: a, exactly: {deviceClassName: %s}}]}}\n"
		allocated = "status: {allocation: {devices: {results: []}}}\n"
		reserved  = "status: {allocation: {devices: {results: []}}, reservedFor: [{resource: pods, name: p, uid: u}]}\n"
		ours      = "cameras.slots.kubeslot.io"
	)
	for name, tc := range map[string]struct {
		namespace, class, old, now string
		want                       string
	}{
		"it is allocated":               {"shop", ours, "", allocated, "does not allow namespace shop"},
		"it was allocated before":       {"shop", ours, allocated, reserved, ""},
		"it is deallocated":             {"shop", ours, allocated, "", ""},
		"its status has nothing":        {"shop", ours, "", "status: {}\n", ""},
		"another class":                 {"shop", "gpu", "", allocated, ""},
		"a namespace that is allowed":   {"lab", ours, "", allocated, ""},
		"the Configuration's namespace": {"devices", ours, "", allocated, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := fmt.Sprintf(spec, tc.namespace, tc.class)
			r := request{by: &user.DefaultInfo{Name: "system:kube-scheduler"}, resource: resourceClaims,
				kind:        "ResourceClaim",
				subresource: "status", namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tc.namespace}},
				old: object + tc.old, object: object + tc.now}
			r.params = deviceClass(cameras(&akriv0.AllowedNamespaces{Names: []string{"lab"}}))
			expect(t, p, r, tc.want)
		})
	}
}

// The policy allows what Configuration.MayBeUsedFrom allows: kube-scheduler decides by the one, and the API
// server by the other.
func TestAllowedNamespacesAgree(t *testing.T) {
	p := policies(t, "policies/dra.yaml")["kubeslot-allowed-namespaces"]
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	verdicts := map[bool]int{}
	for range 2000 {
		c := cameras(randomNamespaces(rng))
		namespace := &corev1.Namespace{}
		namespace.Name, namespace.Labels = oneOf(rng, "devices", "a", "b", "ab"), map[string]string{}
		for _, key := range keysOf {
			if rng.IntN(2) == 0 {
				namespace.Labels[key] = oneOf(rng, valuesOf...)
			}
		}
		want, err := c.MayBeUsedFrom(namespace.Name, func() (map[string]string, error) {
			return namespace.Labels, nil
		})
		r := creation(resourceClaims, "ResourceClaim", namespace,
			"spec: {devices: {requests: [{exactly: {deviceClassName: cameras.slots.kubeslot.io}}]}}")
		r.params = deviceClass(c)
		if got := p.refusal(t, r); (got == "") != want {
			t.Fatalf("namespace %s %v, annotations %q: refusal %q, and MayBeUsedFrom says %v, %v",
				namespace.Name, namespace.Labels, dra.NamespaceAnnotations(c), got, want, err)
		}
		verdicts[want]++
	}
	if verdicts[true] < 200 || verdicts[false] < 200 {
		t.Errorf("%v: too few of one kind", verdicts)
	}
}

var (
	keysOf   = []string{"team", "example.com/floor"}
	valuesOf = []string{"", "x", "y.z", "x-y_z"}
)

func oneOf[T any](rng *rand.Rand, all ...T) T { return all[rng.IntN(len(all))] }

func randomNamespaces(rng *rand.Rand) *akriv0.AllowedNamespaces {
	allowed := &akriv0.AllowedNamespaces{}
	for range rng.IntN(3) {
		allowed.Names = append(allowed.Names, oneOf(rng, "a", "ab", "c"))
	}
	if rng.IntN(4) == 0 {
		return allowed
	}
	allowed.Selector = &metav1.LabelSelector{}
	if rng.IntN(2) == 0 {
		allowed.Selector.MatchLabels = map[string]string{oneOf(rng, keysOf...): oneOf(rng, valuesOf...)}
	}
	for range rng.IntN(3) {
		r := metav1.LabelSelectorRequirement{
			Key: oneOf(rng, keysOf...),
			Operator: oneOf(rng, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
				metav1.LabelSelectorOpDoesNotExist, "Like"),
		}
		for range rng.IntN(3) { // that In has none, or Exists some, is not valid
			r.Values = append(r.Values, oneOf(rng, valuesOf...))
		}
		allowed.Selector.MatchExpressions = append(allowed.Selector.MatchExpressions, r)
	}
	return allowed
}
