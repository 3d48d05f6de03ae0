package services

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/naming"
)

const grpc = `{"ports":[{"name":"grpc","port":80,"targetPort":8083}]}`

func rawOf(text string) *runtime.RawExtension {
	if text == "" {
		return nil
	}
	return &runtime.RawExtension{Raw: []byte(text)}
}

func rendered(t *testing.T, spec string) *corev1.Service {
	t.Helper()
	s, err := render(&owner{
		key: types.NamespacedName{Namespace: "default", Name: "cam"}, label: naming.Configuration, field: "f",
		raw:       rawOf(spec),
		reference: metav1.OwnerReference{Kind: "Configuration", Name: "cam", UID: "u", Controller: new(bool)},
	})
	if err != nil {
		t.Fatal(err)
	}
	*s.OwnerReferences[0].Controller = true
	return s
}

// applied is a Service as the API server has it: with defaults and addresses.
func applied(t *testing.T, spec string) *corev1.Service {
	t.Helper()
	s := rendered(t, spec)
	s.UID, s.ResourceVersion = "s", "1"
	s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	if s.Spec.Type == "" {
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
	single := corev1.IPFamilyPolicySingleStack
	if s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv4Protocol}; s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = "10.0.0.7"
	}
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol = corev1.ProtocolTCP; hasNodePorts(&s.Spec) && p.NodePort == 0 {
			p.NodePort = 30000 + p.Port
		}
	}
	return s
}

func TestRender(t *testing.T) {
	s := rendered(t, `{"selector":{"mine":"x","controller":"wrong"},"type":"NodePort","ports":[{"port":1}]}`)
	want := map[string]string{"mine": "x", "controller": "akri.sh", "akri.sh/configuration": "cam"}
	if d := cmp.Diff(want, s.Spec.Selector); d != "" || s.Name != "cam-svc" || s.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("%+v\n%s", s, d)
	}
	if d := cmp.Diff(map[string]string{"app": "cam-svc", "controller": "akri.sh", "akri.sh/configuration": "cam"}, s.Labels); d != "" {
		t.Errorf("labels %s", d)
	}
	for _, bad := range []string{`{"port":1}`, `[]`, `{"ports":"x"}`, `{"ports":[],"ports":[]}`} {
		_, err := render(&owner{label: "l", field: "spec.x", raw: rawOf(bad)})
		if err == nil || !strings.HasPrefix(err.Error(), "spec.x: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

func TestDecide(t *testing.T) {
	const balancer = `{"type":"LoadBalancer","ports":[{"port":80}]}`
	const nodePort = `{"type":"NodePort","ports":[{"port":80}]}`
	pod := func(phase corev1.PodPhase) []corev1.Pod {
		return []corev1.Pod{{Status: corev1.PodStatus{Phase: phase}}}
	}
	going := applied(t, grpc)
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	edited := applied(t, grpc)
	edited.Spec.Selector = map[string]string{"x": "y"}
	delete(edited.Labels, naming.App)
	strangers := applied(t, grpc)
	strangers.OwnerReferences = nil
	balanced := applied(t, balancer)
	balanced.Spec.LoadBalancerClass = new("cloud") // by a webhook, say
	akris := applied(t, grpc)
	akris.Annotations, akris.Name, akris.Labels[naming.App] = nil, "older-name", "older-name"
	for name, tc := range map[string]struct {
		spec     string
		existing *corev1.Service
		pods     []corev1.Pod
		expected bool
		verb     verb
		check    func(now *corev1.Service) bool
	}{
		"no pod":                           {spec: grpc},
		"a pod waits":                      {spec: grpc, pods: pod(corev1.PodPending)},
		"a pod runs":                       {spec: grpc, pods: pod(corev1.PodRunning), verb: create},
		"none wanted":                      {pods: pod(corev1.PodRunning)},
		"all is well":                      {spec: grpc, existing: applied(t, grpc), pods: pod(corev1.PodRunning)},
		"written otherwise":                {spec: " " + grpc, existing: applied(t, grpc), pods: pod(corev1.PodRunning)},
		"a pod starts again":               {spec: grpc, existing: applied(t, grpc), pods: pod(corev1.PodPending)},
		"the successor of a failed":        {spec: grpc, existing: applied(t, grpc), pods: pod(corev1.PodFailed), expected: true},
		"all ended":                        {spec: grpc, existing: applied(t, grpc), pods: pod(corev1.PodSucceeded), verb: remove},
		"no pod any more":                  {spec: grpc, existing: applied(t, grpc), verb: remove},
		"not wanted any more":              {existing: applied(t, grpc), pods: pod(corev1.PodRunning), verb: remove},
		"going":                            {spec: grpc, existing: going},
		"edited":                           {spec: grpc, existing: edited, pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool { return len(s.Spec.Selector) == 2 && s.Labels[naming.App] == "cam-svc" }},
		"a stranger's, which is not found": {spec: grpc, existing: strangers, pods: pod(corev1.PodRunning), verb: create},
		"Akri's, by owner": {spec: grpc, existing: akris, pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool {
			return s.Name == "older-name" && s.Labels[naming.App] == "older-name" && s.Spec.ClusterIP == "10.0.0.7"
		}},
		"another port": {spec: `{"ports":[{"port":81}]}`, existing: applied(t, grpc), pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool {
			return len(s.Spec.Ports) == 1 && s.Spec.Ports[0].Port == 81 && s.Spec.ClusterIP == "10.0.0.7" && len(s.Spec.IPFamilies) == 1
		}},
		"another type": {spec: nodePort, existing: applied(t, grpc), pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool {
			return s.Spec.Type == corev1.ServiceTypeNodePort && s.Spec.ClusterIP == "10.0.0.7"
		}},
		"node ports stay": {spec: `{"type":"NodePort","ports":[{"name":"a","port":81},{"name":"b","port":80}]}`, existing: applied(t, nodePort), pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool {
			return s.Spec.Ports[0].NodePort == 0 && s.Spec.Ports[1].NodePort == 30080
		}},
		"the class of load balancers stays": {spec: `{"type":"LoadBalancer","ports":[{"port":81}]}`,
			existing: balanced, pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool {
				return s.Spec.LoadBalancerClass != nil && *s.Spec.LoadBalancerClass == "cloud"
			}},
		"another class: made anew": {spec: `{"type":"LoadBalancer","loadBalancerClass":"own","ports":[{"port":80}]}`,
			existing: balanced, pods: pod(corev1.PodRunning), verb: remove},
		"headless: made anew":                {spec: `{"clusterIP":"None","ports":[{"port":80}]}`, existing: applied(t, grpc), pods: pod(corev1.PodRunning), verb: remove},
		"no longer headless: made anew":      {spec: grpc, existing: applied(t, `{"clusterIP":"None"}`), pods: pod(corev1.PodRunning), verb: remove},
		"another address: made anew":         {spec: `{"clusterIP":"10.0.0.8","ports":[{"port":80}]}`, existing: applied(t, grpc), pods: pod(corev1.PodRunning), verb: remove},
		"external name: its address is lost": {spec: `{"type":"ExternalName","externalName":"x"}`, existing: applied(t, grpc), pods: pod(corev1.PodRunning), verb: update, check: func(s *corev1.Service) bool { return s.Spec.ClusterIP == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{owner: "u", pods: tc.pods, expected: tc.expected}
			if tc.spec != "" {
				f.want = rendered(t, tc.spec)
			}
			var before *corev1.Service
			if tc.existing != nil {
				f.services, before = []corev1.Service{*tc.existing}, tc.existing.DeepCopy()
			}
			s := decide(f)
			if s.verb != tc.verb || tc.check != nil && !tc.check(s.service) {
				t.Errorf("%q %+v, want %q", s.verb, s.service, tc.verb)
			}
			if d := cmp.Diff(before, tc.existing); d != "" {
				t.Errorf("the cache's object was changed: %s", d)
			}
			f.expected = true // then pods do not matter to a Service that is there
			if with := decide(f); f.keeps() != (f.existing() != nil) {
				t.Error("a Service that is there is not kept for the pods to come")
			} else if f.pods = nil; f.keeps() && decide(f).verb != with.verb {
				t.Errorf("without its pods %q, want %q", decide(f).verb, with.verb)
			}
			f.pods, f.expected = tc.pods, tc.expected
			if s.verb == update { // and then there is nothing to do
				f.services = []corev1.Service{*s.service}
				if next := decide(f); next.verb != "" {
					t.Errorf("then %q: %s", next.verb, cmp.Diff(s.service, next.service))
				}
			}
		})
	}
}
