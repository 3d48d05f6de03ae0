package repair

import (
	"fmt"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Lack is what a container was assigned and has not been given.
type Lack struct {
	// Slots are those that the scheduler assigned, Plugins the resources that device
	// plugins give out.
	Slots   []assignment.Grant
	Plugins []string
}

// None reports whether the container lacks nothing.
func (l Lack) None() bool { return len(l.Slots)+len(l.Plugins) == 0 }

// Of returns what a container lacks of what the scheduler assigned to it on the node: annotations are all
// that it was created with, those that NRI adds, too. Of a static pod, and of a pod whose assignment
// cannot be read, nobody can say what a container would lack.
func Of(node string, podAnnotations map[string]string, pod claims.Pod, container string,
	annotations map[string]string) Lack {
	if given(annotations) || assignment.Static(podAnnotations) {
		return Lack{}
	}
	of, err := assignment.OfContainer(podAnnotations, pod.UID, node, container)
	if err != nil || of.Info == nil {
		return Lack{}
	}
	l := Lack{Slots: of.Grants}
	for _, name := range soplugins.Assigned(of.Info) {
		l.Plugins = append(l.Plugins, string(name))
	}
	return l
}

// given reports whether the annotations are those of a container that came through
// kubecri: which gives a container all that it was assigned, or none.
func given(annotations map[string]string) bool {
	if _, ok := annotations[soplugins.Annotation]; ok {
		return true
	}
	for key, value := range annotations {
		if _, _, ours, _ := slot.ParseAnnotation(key, value); ours {
			return true
		}
	}
	return false
}

// Error says what is wrong with a container that lacks something.
func (l Lack) Error() string {
	var all []string
	for _, g := range l.Slots {
		all = append(all, "slot "+g.Slot.String())
	}
	return fmt.Sprintf("it was created without what it was assigned (%s): kubecri was not asked, "+
		"or did not answer in time",
		strings.Join(append(all, l.Plugins...), ", "))
}
