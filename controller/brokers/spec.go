package brokers

import (
	"encoding/json"
	"sync"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// spec is what a Configuration says of its brokers. It is shared, and not changed, but for warned.
type spec struct {
	// pod or job is set, never both; neither when err is.
	pod *corev1.PodSpec
	job *batchv1.JobSpec
	// err is why the spec cannot be used.
	err error
	// hash changes with everything that the Configuration says of a broker.
	hash string
	// slots is how many slots of its Instance a broker takes; 0 when it asks for none.
	slots int64
	// requests are of a broker's ResourceClaim, and requestOf has the one of each container that asks for the
	// Instance. There are none where kube-scheduler gives slots.
	requests  []request
	requestOf map[string]string
	// usesProperties is set when the containers get the device's properties, or the
	// spec has them in templates.
	usesProperties bool
	// asksForDevice is set when a container requests any device of akri.sh.
	asksForDevice bool
	// warned is set once an Event of the Configuration says what is wrong with the spec.
	warned atomic.Bool
}

// parse reads the broker spec of a Configuration; nil when it has none.
func parse(c *akriv0.Configuration) *spec {
	b := c.Spec.BrokerSpec
	if b == nil {
		return nil
	}
	s := &spec{}
	var raw []byte
	var template *corev1.PodSpec
	path := podSpecPath
	switch {
	case akriv0.IsSet(b.BrokerPodSpec):
		raw, s.pod = b.BrokerPodSpec.Raw, &corev1.PodSpec{}
		if s.err = brokerspec.Decode(podSpecPath, raw, s.pod); s.err == nil {
			s.err = brokerspec.CheckNode(field.NewPath(podSpecPath), s.pod)
		}
		template = s.pod
	case akriv0.IsSet(b.BrokerJobSpec):
		raw, s.job = b.BrokerJobSpec.Raw, &batchv1.JobSpec{}
		s.err = brokerspec.Decode("spec.brokerSpec.brokerJobSpec", raw, s.job)
		template, path = &s.job.Template.Spec, "spec.brokerSpec.brokerJobSpec.template.spec"
	default:
		return nil
	}
	if s.err == nil {
		s.err = brokerspec.CheckClaims(field.NewPath(path), template)
	}
	if s.err != nil {
		s.pod, s.job = nil, nil
		return s
	}
	s.slots = brokerspec.PodSlots(template)
	s.asksForDevice = brokerspec.AsksForDevice(template)
	s.usesProperties = s.asksForDevice || brokerspec.HasProperty(raw)
	texts := []string{brokerspec.Canonical(raw)}
	if s.usesProperties {
		texts = append(texts, propertiesText(c.Spec.BrokerProperties))
	}
	if s.slots > 0 && c.Spec.IsDRA() {
		s.slots, texts = 0, append(texts, string(akriv0.AllocatorDRA))
		s.requests, s.requestOf = requestsOf(template)
		for _, r := range s.requests {
			s.slots += r.slots
		}
	}
	s.hash = naming.Hash(texts...)
	return s
}

// podSpecPath is where a Configuration has the spec of its broker pods.
const podSpecPath = "spec.brokerSpec.brokerPodSpec"

func propertiesText(properties map[string]string) string {
	if len(properties) == 0 {
		return ""
	}
	text, _ := json.Marshal(properties) // keys are sorted; strings always marshal
	return string(text)
}

// places is how many brokers an Instance has room for.
func (s *spec) places(capacity int) int {
	if s.slots > 0 {
		return capacity / int(min(s.slots, maxSlots+1))
	}
	return capacity
}

const maxSlots = 10000 // Maximum of Configuration.spec.capacity

// specs keeps what was parsed, for a Configuration has a broker for each of its
// thousands of Instances.
type specs struct {
	mu     sync.Mutex
	parsed map[types.NamespacedName]parsedSpec
}

type parsedSpec struct {
	uid        types.UID
	generation int64
	spec       *spec
}

// of returns the spec of a Configuration; nil when it has none.
func (s *specs) of(c *akriv0.Configuration) *spec {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.parsed[key]
	if !ok || p.uid != c.UID || p.generation != c.Generation {
		p = parsedSpec{uid: c.UID, generation: c.Generation, spec: parse(c)}
		if s.parsed == nil {
			s.parsed = map[types.NamespacedName]parsedSpec{}
		}
		s.parsed[key] = p
	}
	return p.spec
}

// forget forgets the spec of a Configuration that is gone.
func (s *specs) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parsed, key)
}
