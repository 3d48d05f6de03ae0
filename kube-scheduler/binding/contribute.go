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
	by          map[string]contribution // by plugin
	info        *types.PodInfo          // with the node's name
	nriPlugin   string                  // of the node
	annotations map[string]string       // of info, and that its containers require the plugin
}

type contribution struct {
	part map[string]types.ContainerInfo // by container
	step Step                           // nil if there is nothing to do before the Binding
}

// Clone implements fwk.StateData.
func (p *parts) Clone() fwk.StateData { return p }

// Contribute adds the plugin's part of the pod's assignment on the node: Requests,
// DevRequests and AllocateFrom, by container; and the step that Bind does first, nil
// for none. Of what the plugin contributed in this cycle before, nothing stays. The
// part must not be changed afterwards.
//
// To be called at Reserve, by one plugin at a time: it is an error, before anything
// is bound, if two plugins give one thing, or if the pod's annotations would become
// larger than the API server allows.
func (b *Binder) Contribute(state fwk.CycleState, pod *v1.Pod, node, plugin string, part map[string]types.ContainerInfo, step Step) error {
	by := map[string]contribution{}
	if before := read(state); before != nil && before.info.NodeName == node {
		maps.Copy(by, before.by)
	}
	by[plugin] = contribution{part, step}
	nriPlugin := ""
	if b.NRIPlugin != nil {
		nriPlugin = b.NRIPlugin(node)
	}
	return write(state, pod, node, nriPlugin, by)
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

// Withdraw takes the plugin's part and step back, at Unreserve.
func Withdraw(state fwk.CycleState, pod *v1.Pod, plugin string) {
	before := read(state)
	if before == nil {
		return
	}
	by := maps.Clone(before.by)
	delete(by, plugin)
	if len(by) == 0 || write(state, pod, before.info.NodeName, before.nriPlugin, by) != nil {
		state.Delete(stateKey)
	}
}

func read(state fwk.CycleState) *parts {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*parts)
}

func write(state fwk.CycleState, pod *v1.Pod, node, nriPlugin string, by map[string]contribution) error {
	info, err := merge(pod, node, by)
	if err != nil {
		return err
	}
	annotations, err := assignment.Encode(info, string(pod.UID), pod.Annotations)
	if err != nil {
		return err
	}
	requirePlugin(annotations, pod, info, nriPlugin)
	if size := assignment.Size(annotations, pod.Annotations); size > assignment.MaxBytes {
		return fmt.Errorf("with the NRI plugins that its containers require the annotations of pod %s would take %d bytes, of %d allowed: shorten its annotations %s",
			pod.Name, size, assignment.MaxBytes, requiredPlugins)
	}
	state.Write(stateKey, &parts{by, info, nriPlugin, annotations})
	return nil
}
