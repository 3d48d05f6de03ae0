package binding

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const stateKey = "kubeslot.io/binding"

// parts are what plugins contributed for a node, and the assignment that they make up.
// It never changes.
type parts struct {
	by          map[string]part   // by plugin, of those that have one
	step        Step              // nil if there is nothing to do before the Binding
	info        *types.PodInfo    // with the node's name
	annotations map[string]string // of info, and that its containers require the plugin; nil if no plugin has a part
}

// part is what one plugin gives, by container.
type part = map[string]types.ContainerInfo

// Clone implements fwk.StateData.
func (p *parts) Clone() fwk.StateData { return p }

// Contribute adds the plugin's part of the pod's assignment on the node: Requests,
// DevRequests and AllocateFrom, by container, nil for none; and the step that Bind does first,
// nil leaves that of another plugin. Of the plugin's own part in this cycle before, nothing stays. The part must
// not be changed afterwards. A pod of which no plugin has a part is bound without an assignment.
//
// To be called at Reserve, by one plugin at a time: it is an error, before anything
// is bound, if two plugins give one thing, or if the pod's annotations would become
// larger than the API server allows.
func (b *Binder) Contribute(state fwk.CycleState, pod *v1.Pod, node, plugin string,
	gives part, step Step) error {
	p := &parts{by: map[string]part{}, step: step}
	if before := read(state); before != nil && before.info.NodeName == node {
		maps.Copy(p.by, before.by)
		if step == nil {
			p.step = before.step
		}
	}
	if p.by[plugin] = gives; gives == nil {
		delete(p.by, plugin)
	}
	var err error
	if p.info, err = merge(pod, node, p.by); err != nil {
		return err
	}
	if len(p.by) > 0 {
		if p.annotations, err = b.encode(pod, p.info); err != nil {
			return err
		}
	}
	state.Write(stateKey, p)
	return nil
}

// encode is the assignment as annotations, with the NRI plugin that its containers require.
func (b *Binder) encode(pod *v1.Pod, info *types.PodInfo) (map[string]string, error) {
	annotations, err := assignment.Encode(info, string(pod.UID), pod.Annotations)
	if err != nil || b.NRIPlugin == nil {
		return annotations, err
	}
	requirePlugin(annotations, pod, info, b.NRIPlugin(info.NodeName))
	if size := assignment.Size(annotations, pod.Annotations); size > assignment.MaxBytes {
		return nil, fmt.Errorf("with the NRI plugins that its containers require the annotations of pod %s would take "+
			"%d bytes, of %d allowed: shorten its annotations %s", pod.Name, size, assignment.MaxBytes, requiredPlugins)
	}
	return annotations, nil
}

// Step is what has to be done just before the Binding is sent, whichever plugin
// sends it: time may have passed since Reserve.
type Step interface {
	// Do does it. When the status is not a success, it has left nothing behind and
	// the pod is left unbound, to be tried again.
	Do(context.Context) *fwk.Status
	// Undo takes it back, once it is certain that the pod was not bound.
	Undo(context.Context)
}

// Withdraw takes back what was contributed, at Unreserve: that is of all plugins.
func Withdraw(state fwk.CycleState) { state.Delete(stateKey) }

func read(state fwk.CycleState) *parts {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*parts)
}
