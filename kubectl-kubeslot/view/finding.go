package view

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Finding is a problem.
type Finding struct {
	// Object is what has it, as resource/name or resource/namespace/name.
	Object string `json:"object"`
	// Reason is a word in CamelCase that stays when texts change.
	Reason string `json:"reason"`
	// Problem says what is wrong and what to do.
	Problem string `json:"problem"`
}

// settling is how long a state may last that a start or an end of a pod passes through.
const settling = time.Minute

// settled reports whether what began at a time has lasted for so long. The time is of the API
// server's clock, now of the reader's: what begins in the future is no news, for else nothing
// of the last hour was told where the reader's clock is an hour behind.
func settled(at, now time.Time) bool {
	age := now.Sub(at)
	return age > settling || age < -settling
}

// findings collects them. The zero value is ready.
type findings []Finding

func (f *findings) add(object, reason, format string, args ...any) {
	*f = append(*f, Finding{object, reason, fmt.Sprintf(format, args...)})
}

func podObject(pod *corev1.Pod) string { return "pod/" + pod.Namespace + "/" + pod.Name }
