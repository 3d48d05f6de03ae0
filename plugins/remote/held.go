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
	ContainerKey
	AllocateFrom types.ResourceLocation
}

// ContainerKey names a container.
type ContainerKey struct{ Namespace, Pod, UID, Container string }

// holders are those of one plugin, with all that they were assigned.
type holders map[ContainerKey]types.ResourceLocation

// holdersOf returns those of the node's that were assigned something that the plugin says the node
// has, and those of before: what a container holds is not free because the plugin misses it.
func holdersOf(before holders, all []Holder, node *types.NodeInfo) holders {
	now := holders{}
	for _, h := range all {
		_, held := before[h.ContainerKey]
		if held || slices.ContainsFunc(slices.Collect(maps.Values(h.AllocateFrom)), node.Has) {
			now[h.ContainerKey] = h.AllocateFrom
		}
	}
	return now
}

// heldChanges are what is new in now, and what is gone.
func heldChanges(before, now holders) *v1alpha1.HeldRequest {
	request := &v1alpha1.HeldRequest{}
	for key, from := range now {
		if had, held := before[key]; !held || !maps.Equal(had, from) {
			holder := key.holder()
			holder.AllocateFrom = make(map[string]string, len(from))
			for want, name := range from {
				holder.AllocateFrom[string(want)] = string(name)
			}
			request.Holders = append(request.Holders, holder)
		}
	}
	for key := range before {
		if _, held := now[key]; !held {
			request.Released = append(request.Released, key.holder())
		}
	}
	return request
}

func (k ContainerKey) holder() *v1alpha1.Holder {
	return &v1alpha1.Holder{Namespace: k.Namespace, Pod: k.Pod, Uid: k.UID, Container: k.Container}
}

// HoldersChanged says that Holders may return something else.
func (d *Devices) HoldersChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.moved)
	d.moved = make(chan struct{})
}

func (d *Devices) holdersMoved() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.moved
}

// hold sends to the server which containers hold its devices until ctx ends. A server that does not
// read waits for itself alone.
func (d *Device) hold(ctx context.Context, s *Server, says *said) {
	logger := klog.FromContext(ctx)
	stream, err := v1alpha1.NewDeviceClient(s).Held(ctx)
	var sent holders // nil for nothing yet
	for err == nil {
		moved := d.of.holdersMoved()
		if all, ok := d.of.config.Holders(); ok {
			now := holdersOf(sent, all, says.node.Load())
			request := heldChanges(sent, now)
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
		case <-moved:
		}
	}
	if stream != nil {
		_, err = stream.CloseAndRecv() // says why it ended
	}
	if ctx.Err() == nil && status.Code(err) != codes.Unimplemented {
		logger.Info("A plugin ended the stream of which containers hold its devices", "err", err)
	}
}
