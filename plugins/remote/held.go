package remote

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// maxHeldBytes bounds a message of Held: gRPC's servers take 4 MiB, unless they say otherwise.
const maxHeldBytes = 4 << 20

// Holder is a container and what it was assigned.
type Holder struct {
	Namespace, Pod, UID, Container string
	AllocateFrom                   types.ResourceLocation
}

// held are the containers that a plugin has been sent, by pod and name.
type held map[[2]string]*v1alpha1.Holder

// changes returns what is held now, and what of that is new. It is by those of the node's containers that
// were assigned something that the plugin says the node has, and by those of before: what a container holds
// is not free because the plugin misses it.
func (before held) changes(all []Holder, node *types.NodeInfo) (held, *v1alpha1.HeldRequest) {
	now, request := held{}, &v1alpha1.HeldRequest{}
	for _, h := range all {
		key := [2]string{h.UID, h.Container}
		if before[key] == nil && !slices.ContainsFunc(slices.Collect(maps.Values(h.AllocateFrom)), node.Has) {
			continue
		}
		holder := &v1alpha1.Holder{Namespace: h.Namespace, Pod: h.Pod, Uid: h.UID, Container: h.Container,
			AllocateFrom: make(map[string]string, len(h.AllocateFrom))}
		for want, from := range h.AllocateFrom {
			holder.AllocateFrom[string(want)] = string(from)
		}
		if now[key] = holder; !proto.Equal(before[key], holder) {
			request.Holders = append(request.Holders, holder)
		}
	}
	for key, h := range before {
		if now[key] == nil {
			request.Released = append(request.Released, &v1alpha1.Holder{Namespace: h.GetNamespace(),
				Pod: h.GetPod(), Uid: h.GetUid(), Container: h.GetContainer()})
		}
	}
	return now, request
}

// HoldersChanged says that Holders may return something else.
func (d *Devices) HoldersChanged() {
	for _, p := range d.Plugins() {
		if s := p.handler.(*Device).said(); s != nil {
			s.holders.Send()
		}
	}
}

// hold sends to the server which containers hold its devices until ctx ends. A server that does not
// read waits for itself alone.
func (d *Device) hold(ctx context.Context, s *Server, says *said) {
	logger := klog.FromContext(ctx)
	stream, err := v1alpha1.NewDeviceClient(s).Held(ctx)
	var sent held // nil for nothing yet
	for err == nil {
		if all, ok := d.config.Holders(); ok {
			now, request := sent.changes(all, says.node.Load())
			if size := proto.Size(request); size > maxHeldBytes {
				logger.Info("Warning: a plugin is not sent which containers hold its devices: it is too much",
					"containers", len(now), "bytes", size, "limit", maxHeldBytes)
				_ = stream.CloseSend() // it fails if the stream has ended
				return
			}
			if sent == nil || len(request.Holders)+len(request.Released) > 0 {
				err = stream.Send(request)
			}
			sent = now
		}
		select {
		case <-ctx.Done():
		case <-time.After(streamPause):
		}
		select {
		case <-ctx.Done():
			return
		case <-says.holders:
		}
	}
	if stream != nil {
		_, err = stream.CloseAndRecv() // says why it ended
	}
	if ctx.Err() == nil && status.Code(err) != codes.Unimplemented {
		logger.Info("A plugin ended the stream of which containers hold its devices", "err", err)
	}
}
