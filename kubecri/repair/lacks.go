package repair

import (
	"fmt"
	"time"

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

// Container is what tells whether a container has what it was assigned.
type Container struct {
	Pod            claims.Pod
	PodAnnotations map[string]string
	Name           string
	// Annotations are all that it was created with, those that NRI adds, too.
	Annotations map[string]string
	// CreatedAt is in nanoseconds; 0 for one that is about to be created.
	CreatedAt int64
}

// Of returns what a container lacks of what the scheduler assigned to it on the node. A container of before
// pluginsMarkedSince does not say what device plugins gave it. Of a static pod, and of a pod whose assignment
// cannot be read, nobody can say what a container would lack.
func Of(node string, c Container, pluginsMarkedSince time.Time) Lack {
	if given(c.Annotations) || assignment.Static(c.PodAnnotations) {
		return Lack{}
	}
	of, err := assignment.OfContainer(c.PodAnnotations, c.Pod.UID, node, c.Name)
	older := c.CreatedAt != 0 && c.CreatedAt <= pluginsMarkedSince.UnixNano()
	if err != nil || of.Info == nil || older && len(of.Grants) == 0 {
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
		claims.Some(append(all, l.Plugins...)))
}
