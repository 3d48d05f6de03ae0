package devicepluginmode

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
)

// eventLoop listens to the runtime for what ends. Without events such slots stay taken
// until the next refresh.
func (p *Plugins) eventLoop(ctx context.Context) {
	crilist.Follow(ctx, crilist.Followed{Runtime: p.Runtime, Clock: clock.RealClock{}, Otherwise: refreshEvery,
		Happened: p.happened, Missed: p.relist})
}

// happened asks for a relist when the event is about a container with slots.
func (p *Plugins) happened(event *runtimeapi.ContainerEventResponse) {
	switch event.ContainerEventType {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		if p.account.anyUnused() { // it may be a container of these
			p.relist()
		}
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		p.mu.Lock()
		concerns := p.containers[event.ContainerId]
		p.mu.Unlock()
		if concerns {
			p.relist()
		}
	}
}
