package configurationresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
)

// Bind binds a pod that got slots, with its assignment in the Binding's
// annotations: one write, so that a pod is never bound without it. Other pods
// are left to the next bind plugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	return binding.Bind(ctx, p.handle, p.signer, state, pod, node)
}
