package nri

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// defaultValidator is the name of the runtime's own plugin that refuses containers whose required
// plugins are not connected (nri, plugins/default-validator/builtin). A runtime has it among the
// plugins of a request while it is enabled.
const defaultValidator = "default-validator"

// validated has the node say whether the runtime requires this plugin, by what it asks plugins to
// validate.
func (s *session) validated(r *api.ValidateContainerAdjustmentRequest) {
	c := nodewriter.Condition{Type: string(v1alpha1.StartsWithoutKubecri), Status: corev1.ConditionFalse,
		Reason:  "Required",
		Message: "the runtime creates no container with devices of Kubeslot's while kubecri is away"}
	if !slices.ContainsFunc(r.GetPlugins(), func(p *api.PluginInstance) bool { return p.GetName() == defaultValidator }) {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "NotRequired", startsWithout+switchOn(s.runtime)
	}
	s.config.Condition(c)
}

// notValidatedYet has the node say that it is not known, for a runtime that connects: it may have been
// restarted with another configuration.
func (s *session) notValidatedYet() {
	s.config.Condition(nodewriter.Condition{Type: string(v1alpha1.StartsWithoutKubecri),
		Status: corev1.ConditionUnknown, Reason: "NoContainerYet",
		Message: "whether the runtime starts containers without their devices while kubecri is away is not known: kubecri sees it when a container is created there"})
}

// tooOld has the node say that its runtime cannot require a plugin.
func (s *session) tooOld() {
	s.config.Condition(nodewriter.Condition{Type: string(v1alpha1.StartsWithoutKubecri), Status: corev1.ConditionTrue,
		Reason:  "RuntimeTooOld",
		Message: startsWithout + "containerd 2.2, CRI-O 1.34 and newer can be told not to"})
}

const startsWithout = "while kubecri is away, the runtime starts containers without their devices: "

// switchOn says how the runtime is told to require plugins.
func switchOn(runtime string) string {
	if strings.HasPrefix(runtime, "cri-o") {
		return "set nri_enable_default_validator = true under [crio.nri.default_validator] in /etc/crio/crio.conf.d/, and restart crio (docs/nri.md)"
	}
	return "set enable = true under [plugins.'io.containerd.nri.v1.nri'.default_validator] in its configuration, and restart it (docs/nri.md)"
}
