// Package naming has the names, labels and annotations of what the controller makes
// for a Configuration. Names and labels are Akri's, so that its tools, its dashboards
// and people's selectors find brokers as before.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Labels of pods, jobs, services and ResourceClaimTemplates.
const (
	App           = "app"        // the object's own name
	Controller    = "controller" // ControllerName, on all of them
	Configuration = akriv0.BrokerLabel
	// Instance is the Instance that the broker, or the Service, is for. The name is Akri's.
	//
	// Label of Pods, Jobs, Services and ResourceClaimTemplates. Written by controller. Read by controller, selectors
	// of people and Services.
	Instance = "akri.sh/instance"
	// TargetNode is the node that the broker is for. The name is Akri's.
	//
	// Label of Pods. Written by controller. Read by controller, people.
	TargetNode = "akri.sh/target-node"

	ControllerName = "akri.sh"
)

// Annotations of the same, and of Instances. Akri has none of them.
const (
	// SpecHash is the hash of the spec that the object was made of: another spec has it made again.
	//
	// Annotation of Pods, Jobs and Services. Written by controller. Read by controller.
	SpecHash = "kubeslot.io/broker-spec"
	// PropertiesHash is the hash of the device's properties when the broker was made: another has it made again.
	//
	// Annotation of Pods. Written by controller. Read by controller.
	PropertiesHash = "kubeslot.io/broker-properties"
	// Failures is on a broker pod: how many of its predecessors on the node have failed
	// in a row. On an Instance it is the same of nodes whose broker has been removed for
	// its successor, as JSON.
	//
	// Annotation of Pods and Instances. Written by controller. Read by controller.
	Failures = "kubeslot.io/broker-failures"
	// JobDone is on an Instance: the hash of the spec of the Job that was made for it last.
	//
	// Annotation of Instances. Written by controller. Read by controller.
	JobDone = "kubeslot.io/broker-job"
	// JobHeld is on a Job that is suspended until its Instance has the annotation of what was made last: it must not
	// end, and be removed, before.
	//
	// Annotation of Jobs. Written by controller. Read by controller.
	JobHeld = "kubeslot.io/broker-held"
)

// Pod is the name of an Instance's broker pod on a node.
func Pod(instance, node string, shared bool) string {
	if shared {
		return Cut(node + "-" + strings.ReplaceAll(instance, ".", "-") + "-pod")
	}
	return Cut(instance + "-pod")
}

// Job is the name of an Instance's Job for a generation of its Configuration.
func Job(instance string, generation int64) string {
	return Cut(instance + "-" + strconv.FormatInt(generation, 10) + "-job")
}

// ClaimTemplate is the name of an Instance's ResourceClaimTemplate, by the hash of its spec.
func ClaimTemplate(instance, hash string) string { return Cut(instance + "-" + hash) }

// Service is the name of the Service of an Instance or of a Configuration. A Service's
// name begins with a letter, which a Configuration's need not.
func Service(of string) string {
	if of != "" && of[0] >= '0' && of[0] <= '9' {
		of = "svc-" + of
	}
	return Cut(of + "-svc")
}

// ConfigurationOf is the key of an Instance's Configuration.
func ConfigurationOf(instance types.NamespacedName) types.NamespacedName {
	name, _ := slot.SplitInstance(instance.Name)
	return types.NamespacedName{Namespace: instance.Namespace, Name: name}
}

// PodLabels are those of an Instance's broker pod on a node.
func PodLabels(configuration, instance, node, name string) map[string]string {
	labels := JobLabels(configuration, instance, name)
	labels[TargetNode] = Cut(node)
	return labels
}

// JobLabels are those of an Instance's Job, of the Job's pods, and of the Instance's ResourceClaimTemplate.
func JobLabels(configuration, instance, name string) map[string]string {
	return map[string]string{
		App: name, Controller: ControllerName, Configuration: configuration, Instance: instance,
	}
}

// hashLength is how many hex digits tell names apart that were cut.
const hashLength = 8

// Cut returns a name as it is when it fits into a label's value, which is 63
// characters; else its beginning with a hash of the whole. Names that were made by
// Akri fit: it could not make others.
func Cut(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	head := strings.TrimRight(name[:validation.LabelValueMaxLength-1-hashLength], "-._")
	return head + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// CutText returns a text as it is when it has at most so many characters; else its beginning.
func CutText(text string, length int) string {
	if runes := []rune(text); len(runes) > length {
		return string(runes[:length-1]) + "…"
	}
	return text
}

// Hash is a short digest of texts, for annotations that tell whether something
// changed.
func Hash(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write([]byte(strconv.Itoa(len(t)) + ":" + t))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// OwnedBy makes an Instance or a Configuration the controller of what is made for it, so that the
// garbage collector removes that with it. It does not block the owner's deletion, which need not wait.
func OwnedBy(kind string, owner metav1.Object) metav1.OwnerReference {
	o := *metav1.NewControllerRef(owner, akriv0.SchemeGroupVersion.WithKind(kind))
	o.BlockOwnerDeletion = nil
	return o
}

// SameObject reports whether two owners have the same group, kind and name: one may be a former
// object of the name. Other systems have kinds of the same name, as Knative a Configuration.
func SameObject(a, b metav1.OwnerReference) bool {
	group := func(o metav1.OwnerReference) string {
		return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).Group
	}
	return group(a) == group(b) && a.Kind == b.Kind && a.Name == b.Name
}
