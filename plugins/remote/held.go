package remote

import (
	"context"
	"errors"
	"io"
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

// held are the containers that a plugin has been sent, by pod and name.
type held map[[2]string]*v1alpha1.Holder

// HoldersChanged says that the Holders of the folder's Devices may return something else.
func (s *Sockets) HoldersChanged() {
	for _, p := range s.Plugins() {
		if s := p.handler.(*Device).said(); s != nil {
			s.holders.Send()
		}
	}
}

// hold sends to the server which containers hold its devices until ctx ends. A server that does not
// read waits for itself alone.
func (d *Device) hold(ctx context.Context, s *Server, says *said) {
	stream, err := v1alpha1.NewDeviceClient(s).Held(ctx)
	var sent held // nil for nothing yet
	for err == nil {
		if all, ok := d.Holders(); ok {
			now, request := sent.changes(all, says.node.Load())
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
	if errors.Is(err, io.EOF) {
		_, err = stream.CloseAndRecv() // says why the plugin ended it
	}
	if ctx.Err() == nil && status.Code(err) != codes.Unimplemented {
		klog.FromContext(ctx).Info("A plugin is not sent any more which containers hold its devices", "err", err)
	}
}

// changes returns what is held now, and what of that is new. It is by those of the node's containers that
// were assigned something that the plugin says the node has, and by those of before: what a container holds
// is not free because the plugin misses it.
func (before held) changes(all []*v1alpha1.Holder, node *types.NodeInfo) (held, *v1alpha1.HeldRequest) {
	now, request := held{}, &v1alpha1.HeldRequest{}
	has := func(from string) bool { return node.Has(types.ResourceName(from)) }
	for _, h := range all {
		key := [2]string{h.GetUid(), h.GetContainer()}
		if before[key] == nil && !slices.ContainsFunc(slices.Collect(maps.Values(h.GetAllocateFrom())), has) {
			continue
		}
		if now[key] = h; !proto.Equal(before[key], h) {
			request.Holders = append(request.Holders, h)
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
