package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/kubeslot/kubeslot/kubecri/repair"
)

// lacks returns what the container was assigned and has not been given; nil for nothing.
// Such a container was created while the runtime did without us.
func (p *Plugin) lacks(sandbox *api.PodSandbox, c *api.Container) error {
	lack := repair.Of(p.config.Node, sandbox.GetAnnotations(), podOf(sandbox), c.GetName(), c.GetAnnotations())
	if lack.None() || len(lack.Slots) == 0 && c.GetCreatedAt() != 0 && c.GetCreatedAt() <= p.config.Claims.MarkedSince().UnixNano() {
		return nil // it has what it was assigned, or came through an older kubecri, which did not say so
	}
	return lack
}
