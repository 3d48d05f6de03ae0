package soplugins

import (
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/inject"
)

// Annotation is on each container that device plugins gave something, with the resources
// that it was assigned. Containers with slots have annotations of their own. A container
// that was assigned something and has neither bypassed kubecri.
//
// Annotation of containers in the runtime. Written by kubecri. Read by kubecri.
const Annotation = "kubeslot.io/plugin-devices"

// Mark returns what marks a container that was assigned the resources.
func Mark(resources []string) inject.Edits {
	return inject.Edits{Owner: "device plugins", Annotations: map[string]string{Annotation: strings.Join(resources, ",")}}
}
