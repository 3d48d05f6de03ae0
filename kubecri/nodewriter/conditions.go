package nodewriter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionPrefix begins the types of all conditions that kubecri writes: no others may be written,
// see deploy/policies/kubecri.yaml.
const ConditionPrefix = "kubeslot.io/"

// Condition is what the node is to say. Its type begins with ConditionPrefix. Status True means
// trouble.
type Condition struct {
	Type            string
	Status          corev1.ConditionStatus
	Reason, Message string
}

// maxMessage bounds a condition's message, in bytes.
const maxMessage = 1024

// Set has the node say the condition from now on. It returns at once. There is no heartbeat.
func (w *Writer) Set(c Condition) {
	// The API server gives back text that is UTF-8.
	if c.Message = strings.ToValidUTF8(c.Message, "?"); len(c.Message) > maxMessage {
		c.Message = strings.ToValidUTF8(c.Message[:maxMessage-3], "") + "..."
	}
	w.mu.Lock()
	changed := w.conditions[c.Type] != c
	w.conditions[c.Type] = c
	w.mu.Unlock()
	if changed {
		w.Wake()
	}
}

func (w *Writer) planConditions(_ context.Context, node *corev1.Node) (Patch, time.Duration, error) {
	w.mu.Lock()
	wanted := slices.SortedFunc(maps.Values(w.conditions),
		func(a, b Condition) int { return cmp.Compare(a.Type, b.Type) })
	w.mu.Unlock()
	var p Patch
	for _, c := range news(node.Status.Conditions, wanted, metav1.NewTime(w.config.Clock.Now())) {
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	return p, 0, nil
}

// news returns those of the wanted conditions that the node does not have so.
func news(has []corev1.NodeCondition, wanted []Condition, now metav1.Time) []corev1.NodeCondition {
	var news []corev1.NodeCondition
	for _, w := range wanted {
		since := now
		i := slices.IndexFunc(has, func(c corev1.NodeCondition) bool { return string(c.Type) == w.Type })
		if i >= 0 {
			is := has[i]
			if is.Status == w.Status && is.Reason == w.Reason && is.Message == w.Message {
				continue
			}
			if is.Status == w.Status {
				since = is.LastTransitionTime
			}
		}
		news = append(news, corev1.NodeCondition{Type: corev1.NodeConditionType(w.Type), Status: w.Status,
			Reason: w.Reason, Message: w.Message,
			LastHeartbeatTime: now, LastTransitionTime: since})
	}
	return news
}
