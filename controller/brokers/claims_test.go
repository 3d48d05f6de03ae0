package brokers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// byDRA is the Configuration with allocator DRA.
func byDRA(c *akriv0.Configuration) *akriv0.Configuration {
	c.Spec.Allocator = akriv0.AllocatorDRA
	return c
}

// jobByDRA has a Job that uses its Instance's device, with allocator DRA.
func jobByDRA() *akriv0.Configuration {
	c := byDRA(configuration(2, ""))
	job := &runtime.RawExtension{Raw: []byte(`{"template":{"spec":` + onePod + `}}`)}
	c.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerJobSpec: job}
	return c
}

func TestClaimsOfContainers(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		requests   string // name=slots
		of         string // container=request
		slots      int64
	}{
		{"one", `containers: [{name: a, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}]`, "a=1", "a=a", 1},
		{"some of several", `
containers:
- {name: a, resources: {limits: {"{{PLACEHOLDER}}": "1", cpu: 1}, requests: {"{{PLACEHOLDER}}": "1"}}}
- {name: b, resources: {limits: {cpu: 1}}}
- {name: c, resources: {requests: {"{{PLACEHOLDER}}": "2"}, claims: [{name: own}]}}`, "a=1 c=2", "a=a c=own,c", 3},
		{"init containers use the slots of containers", `
initContainers:
- {name: same, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}
- {name: more, resources: {limits: {"{{PLACEHOLDER}}": "4"}}}
- {name: again, resources: {limits: {"{{PLACEHOLDER}}": "4"}}}
containers:
- {name: a, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}
- {name: b, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}`, "a=1 b=2 more=4",
			"same=b more=more again=more a=a b=b", 7},
		{"sidecars have their own", `
initContainers:
- {name: before, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}
- {name: side, restartPolicy: Always, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}
- {name: after, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}
containers:
- {name: a, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}`, "a=1 side=2 after=2",
			"before=a side=side after=after a=a", 5},
		{"none", `containers: [{name: a, resources: {limits: {cpu: 1}}}]`, "", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFacts(t, byDRA(configuration(8, podSpec(t, tc.spec))), "node-a")
			if f.spec.slots != tc.slots {
				t.Errorf("%d slots, want %d", f.spec.slots, tc.slots)
			}
			var requests, of []string
			if template := claimTemplate(f); template != nil {
				for _, r := range template.Spec.Spec.Devices.Requests {
					slots := r.Exactly.Capacity.Requests["slots"]
					requests = append(requests, fmt.Sprintf("%s=%s", r.Name, slots.String()))
				}
			}
			pod, err := renderPod(f, "node-a", 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(pod.Spec.ResourceClaims) != min(1, len(requests)) {
				t.Errorf("the pod has the claims %v", pod.Spec.ResourceClaims)
			}
			for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				var names []string
				for _, claim := range c.Resources.Claims {
					name := claim.Request
					if claim.Name != brokerspec.PodClaim {
						name = claim.Name
					}
					names = append(names, name)
				}
				if names != nil {
					of = append(of, c.Name+"="+strings.Join(names, ","))
				}
				for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
					for name := range list {
						if name != corev1.ResourceCPU {
							t.Errorf("container %s requests %s", c.Name, name)
						}
					}
				}
			}
			if d := cmp.Diff(tc.requests, strings.Join(requests, " ")); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.of, strings.Join(of, " ")); d != "" {
				t.Errorf("claims of containers (-want +got):\n%s", d)
			}
		})
	}
}

func TestClaimTemplate(t *testing.T) {
	f := newFacts(t, byDRA(configuration(2, onePod)), "node-a")
	template := claimTemplate(f)
	got, err := yaml.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	want := `metadata:
  labels:
    akri.sh/configuration: cam
    akri.sh/instance: cam-8120fe
    app: ` + template.Name + `
    controller: akri.sh
  name: ` + template.Name + `
  namespace: default
  ownerReferences:
  - apiVersion: akri.sh/v0
    controller: true
    kind: Instance
    name: cam-8120fe
    uid: instance-uid
spec:
  metadata:
    labels:
      akri.sh/configuration: cam
  spec:
    devices:
      requests:
      - exactly:
          capacity:
            requests:
              slots: "1"
          deviceClassName: cam.slots.kubeslot.io
          selectors:
          - cel:
              expression: device.attributes['slots.kubeslot.io'].instance == 'cam-8120fe'
        name: b
`
	if d := cmp.Diff(want, string(got)); d != "" || !strings.HasPrefix(template.Name, instanceName+"-") {
		t.Errorf("(-want +got):\n%s", d)
	}
	pod, err := renderPod(f, "node-a", 0)
	if err != nil {
		t.Fatal(err)
	}
	claims := []corev1.PodResourceClaim{{Name: brokerspec.PodClaim, ResourceClaimTemplateName: &template.Name}}
	if d := cmp.Diff(claims, pod.Spec.ResourceClaims); d != "" {
		t.Errorf("claims of the pod (-want +got):\n%s", d)
	}
	c := jobByDRA()
	job, err := renderJob(newFacts(t, c, "node-a"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(claims, job.Spec.Template.Spec.ResourceClaims); d != "" {
		t.Errorf("claims of a Job's pod (-want +got):\n%s", d)
	}
	two := newFacts(t, byDRA(configuration(2, strings.Replace(onePod, `"1"`, `"2"`, 1))), "node-a")
	if name := claimTemplate(two).Name; name == template.Name {
		t.Errorf("the template for two slots has the name of the one for one, %s", name)
	}
}

func TestTheAllocatorIsInTheHash(t *testing.T) {
	const none = `{"containers":[{"name":"b","image":"i"}]}`
	for _, tc := range []struct {
		spec  string
		other bool
	}{{onePod, true}, {none, false}} {
		slots, dra := parse(configuration(2, tc.spec)), parse(byDRA(configuration(2, tc.spec)))
		if other := slots.hash != dra.hash; other != tc.other {
			t.Errorf("%s: another hash with allocator DRA: %t, want %t", tc.spec, other, tc.other)
		}
	}
}

// A broker's successor gets no slot of an Instance while any pod has one by the other allocator.
func TestAChangeOfTheAllocatorReplacesAllBrokersAtOnce(t *testing.T) {
	claims := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: brokerspec.PodClaim}} }
	slots, dra := configuration(2, onePod), byDRA(configuration(2, onePod))
	paused := byDRA(configuration(2, onePod))
	paused.Spec.BrokerUpdate = &akriv0.BrokerUpdate{Paused: true}
	for _, tc := range []struct {
		name string
		c    *akriv0.Configuration
		with []func(*corev1.Pod)
		want string
	}{
		{"to DRA", dra, nil, "-a/a, -b/b"},
		{"to Slots", slots, []func(*corev1.Pod){claims}, "-a/a, -b/b"},
		{"another spec, with DRA", dra, []func(*corev1.Pod){claims}, "~a, ~b"},
		{"another spec, with Slots", slots, nil, "~a, ~b"},
		{"paused", paused, nil, ""},
	} {
		with := append(tc.with, former)
		f := newFacts(t, tc.c, "a b", brokerPod("a", "Ready", with...), brokerPod("b", "Ready", with...))
		if got := decide(f).show(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A claim of the name that the controller's own has is said to be wrong before the API server refuses all pods, and
// before a roll-out takes it for the controller's.
func TestAClaimOfTheControllersName(t *testing.T) {
	const pod = `{"resourceClaims":[{"name":"kubeslot","resourceClaimName":"gpu"}],` +
		`"containers":[{"name":"b","image":"i"}]}`
	job := configuration(2, "")
	job.Spec.BrokerSpec = &akriv0.BrokerSpec{
		BrokerJobSpec: &runtime.RawExtension{Raw: []byte(`{"template":{"spec":` + pod + `}}`)}}
	for want, c := range map[string]*akriv0.Configuration{
		"spec.brokerSpec.brokerPodSpec.resourceClaims[0].name":               configuration(2, pod),
		"spec.brokerSpec.brokerJobSpec.template.spec.resourceClaims[0].name": job,
	} {
		if s := parse(c); s.err == nil || !strings.HasPrefix(s.err.Error(), want) {
			t.Errorf("error %v, want one of %s", s.err, want)
		}
	}
}

func TestTheTemplateIsMadeBeforeTheBrokers(t *testing.T) {
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(byDRA(configuration(2, onePod)))
	r.found("a", "b")
	template := claimTemplate(newFacts(t, byDRA(configuration(2, onePod)), "a b"))
	made := "create ResourceClaimTemplate " + strings.Replace(template.Name, "-"+instanceName, "", 1)
	want := []string{made, "create Pod a-pod", "create Pod b-pod"}
	if d := cmp.Diff(want, r.settle()); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}
	if err := r.fake.Delete(t.Context(), &r.pods()[0]); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{made, "create Pod a-pod"}, r.settle()); d != "" {
		t.Errorf("writes for a broker that was deleted (-want +got):\n%s", d)
	}
	if told := r.told(); told != "" {
		t.Error(told)
	}
}

func TestTemplatesThatCannotBeMade(t *testing.T) {
	template := claimTemplate(newFacts(t, byDRA(configuration(2, onePod)), "a"))
	name := "ResourceClaimTemplate " + template.Name
	owned := func(uid string) *resourceapi.ResourceClaimTemplate {
		there := template.DeepCopy()
		there.OwnerReferences[0].UID = types.UID(uid)
		if uid == "" {
			there.OwnerReferences = nil
		}
		return there
	}
	group := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}
	for _, tc := range []struct {
		name  string
		there client.Object
		err   error
		want  Problem
	}{
		{name: "of a former Instance", there: owned("former")}, // and goes
		{name: "of somebody else", there: owned(""), want: Problem{NameTaken,
			"there is a " + name + " that is not this Instance's: rename or delete it"}},
		{name: "refused", err: apierrors.NewForbidden(group, "t", errors.New("quota")), want: Problem{NotCreated,
			name + `: resourceclaimtemplates.resource.k8s.io "t" is forbidden: quota`}},
		{name: "not served", err: apierrors.NewNotFound(group, "t"), want: Problem{NotCreated,
			name + `: resourceclaimtemplates.resource.k8s.io "t" not found`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := []client.Object{theInstance()}
			if tc.there != nil {
				objects = append(objects, tc.there)
			}
			r := newRig(t, objects...)
			r.inv.SetConfiguration(byDRA(configuration(2, onePod)))
			r.found("a")
			r.refuse = func(string) error { return tc.err }
			result, err := r.reconcile()
			if err != nil || result.RequeueAfter == 0 {
				t.Errorf("look again after %v, %v", result.RequeueAfter, err)
			}
			if pods := r.pods(); len(pods) != 0 {
				t.Errorf("pods %v were made", pods)
			}
			var problem Problem
			if sum := r.sum(); sum.Problem != nil {
				problem = *sum.Problem
			}
			if d := cmp.Diff(tc.want, problem); d != "" {
				t.Errorf("problem (-want +got):\n%s", d)
			}
		})
	}
}

// A template whose labels somebody changed does as well.
func TestAJobsTemplateIsThere(t *testing.T) {
	c := jobByDRA()
	there := claimTemplate(newFacts(t, c, "a"))
	there.Labels = nil
	r := newRig(t, theInstance(), there)
	r.inv.SetConfiguration(c)
	r.found("a")
	if _, err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	job := &metav1.PartialObjectMetadata{}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"})
	key := client.ObjectKey{Namespace: "default", Name: naming.Job(instanceName, 1)}
	if err := r.api.Get(t.Context(), key, job); err != nil {
		t.Error(err)
	}
}
