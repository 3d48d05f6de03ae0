package kubeletplugins

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
)

// eventLoop listens to the runtime for what ends. Without events such slots stay taken
// until the next refresh.
func (p *Plugins) eventLoop(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logged := false
	for {
		err := crilist.Events(ctx, p.Runtime, p.happened)
		if ctx.Err() != nil {
			return
		}
		retry := runtimeRetry
		if status.Code(err) == codes.Unimplemented {
			if !logged {
				logged = true
				logger.Info("The runtime has no container events: slots are released at the next refresh", "refresh", refreshEvery)
			}
			retry = refreshEvery // another version may run by then
		} else {
			logger.V(2).Info("The runtime's container events ended, listening again", "reason", err, "every", runtimeRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		p.relist() // for what was missed
	}
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
