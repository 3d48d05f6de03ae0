// Package crilist lists the containers and the pod sandboxes of a node, however many
// there are. An answer of CRI is one gRPC message, and a runtime refuses to send one that
// is larger than its limit (containerd: 16 MiB): on a node with thousands of ended
// containers, or with pods of large annotations, ListContainers or ListPodSandbox fails
// then, also for the kubelet. Here the list is asked for as a stream (KEP-5825), or, of a
// runtime without streams, in parts that fit. It also reads the runtime's events.
package crilist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is what is asked of the runtime's CRI.
type Runtime interface {
	ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error)
	ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error)
	PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error)
	StreamContainers(ctx context.Context, in *runtimeapi.StreamContainersRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error)
	StreamPodSandboxes(ctx context.Context, in *runtimeapi.StreamPodSandboxesRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error)
	GetContainerEvents(ctx context.Context, in *runtimeapi.GetEventsRequest, opts ...grpc.CallOption,
	) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error)
}

// Listing is what a node has that can run or run again.
type Listing struct {
	// Containers are at least those that are Usable.
	Containers []*runtimeapi.Container
	// Sandboxes are at least those of Containers that are ready or whose container MayLive,
	// by id.
	Sandboxes map[string]*runtimeapi.PodSandbox
	// Parts says that the runtime could not answer in one message.
	Parts bool
}

// Usable reports whether the container runs or can run again, so that it uses its slots: those
// of a ready sandbox, running or not, since the kubelet restarts an exited container in its
// sandbox; and those that MayLive without it.
func (l Listing) Usable(c *runtimeapi.Container) bool {
	sandbox := l.Sandboxes[c.PodSandboxId] // nil when it went in between
	return sandbox != nil && sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY || MayLive(c)
}

// MayLive reports whether the container runs, or may: of one in an unknown state the runtime has
// lost the process, which may live.
func MayLive(c *runtimeapi.Container) bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// List asks the runtime for what it has. The error says what is too large, and what to do,
// when not even a part fits in a message.
func List(ctx context.Context, r Runtime) (Listing, error) {
	containers, err := listContainers(ctx, r, nil)
	manyContainers := tooLarge(err)
	if err != nil && !manyContainers {
		return Listing{}, fmt.Errorf("list containers: %w", err)
	}
	sandboxes, err := listSandboxes(ctx, r, nil)
	manySandboxes := tooLarge(err)
	switch {
	case err != nil && !manySandboxes:
		return Listing{}, fmt.Errorf("list pod sandboxes: %w", err)
	case !manyContainers && !manySandboxes:
		return Listing{Containers: containers, Sandboxes: byID(sandboxes)}, nil
	}
	p := parts{Runtime: r, containers: map[string]*runtimeapi.Container{}, sandboxes: byID(sandboxes)}
	for _, c := range containers {
		p.containers[c.Id] = c
	}
	if manySandboxes {
		err = p.readySandboxes(ctx)
	} else {
		p.readyKnown, err = true, nil
	}
	if err == nil && manyContainers {
		err = p.usefulContainers(ctx)
	}
	if err == nil && manySandboxes {
		err = p.missingSandboxes(ctx)
	}
	if err != nil {
		return Listing{}, fmt.Errorf("list in parts what does not fit in one message: %w", err)
	}
	listing := Listing{Sandboxes: p.sandboxes, Parts: true}
	for _, id := range slices.Sorted(maps.Keys(p.containers)) {
		listing.Containers = append(listing.Containers, p.containers[id])
	}
	return listing, nil
}

// parts is a listing that is being put together.
type parts struct {
	Runtime
	containers map[string]*runtimeapi.Container
	sandboxes  map[string]*runtimeapi.PodSandbox
	// readyKnown says that sandboxes has all that are ready.
	readyKnown bool
}

// readySandboxes lists the sandboxes that are ready, if these fit in a message.
func (p *parts) readySandboxes(ctx context.Context) error {
	state := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	ready, err := listSandboxes(ctx, p, &runtimeapi.PodSandboxFilter{State: state})
	switch {
	case tooLarge(err):
		return nil // each is asked about
	case err != nil:
		return fmt.Errorf("list the pod sandboxes that are ready: %w", err)
	}
	p.sandboxes, p.readyKnown = byID(ready), true
	return nil
}

// usefulContainers lists the containers that may live and those of ready sandboxes: one of
// another sandbox that has ended cannot start again. It asks in the order of a container's life, so
// that one whose state changes meanwhile is in one of the lists.
func (p *parts) usefulContainers(ctx context.Context) error {
	var filters []containerFilter
	if p.readyKnown {
		for id, s := range p.sandboxes {
			if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
				filters = append(filters, containerFilter{"of pod sandbox " + id,
					&runtimeapi.ContainerFilter{PodSandboxId: id}})
			}
		}
	} else {
		filters = append(filters, inState("that are created", runtimeapi.ContainerState_CONTAINER_CREATED))
	}
	filters = append(filters, inState("that run", runtimeapi.ContainerState_CONTAINER_RUNNING),
		inState("of unknown state", runtimeapi.ContainerState_CONTAINER_UNKNOWN))
	if !p.readyKnown {
		filters = append(filters, inState("that have exited", runtimeapi.ContainerState_CONTAINER_EXITED))
	}
	for _, filter := range filters {
		containers, err := listContainers(ctx, p, filter.ContainerFilter)
		if err != nil {
			return fmt.Errorf("list the containers %s: %w", filter.what, advised(err))
		}
		for _, c := range containers {
			// One that has just started is in two lists.
			if has := p.containers[c.Id]; has == nil || has.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				p.containers[c.Id] = c
			}
		}
	}
	return nil
}

// containerFilter is a part of the runtime's containers, in words, too.
type containerFilter struct {
	what string
	*runtimeapi.ContainerFilter
}

func inState(what string, state runtimeapi.ContainerState) containerFilter {
	return containerFilter{what,
		&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: state}}}
}

// missingSandboxes asks about each sandbox that may matter and is not known: all of them,
// or those alone whose container may live though they are not ready.
func (p *parts) missingSandboxes(ctx context.Context) error {
	asked := map[string]bool{}
	for _, c := range p.containers {
		id := c.PodSandboxId
		if p.sandboxes[id] != nil || asked[id] || p.readyKnown && !MayLive(c) {
			continue
		}
		asked[id] = true
		response, err := p.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return fmt.Errorf("ask for the status of pod sandbox %s: %w", id, advised(err))
		}
		s := response.GetStatus()
		p.sandboxes[id] = &runtimeapi.PodSandbox{Id: id, Metadata: s.GetMetadata(), State: s.GetState(), CreatedAt: s.GetCreatedAt(),
			Labels: s.GetLabels(), Annotations: s.GetAnnotations(), RuntimeHandler: s.GetRuntimeHandler()}
	}
	return nil
}

// tooLarge reports whether the answer is larger than the runtime sends, or we take.
func tooLarge(err error) bool { return status.Code(err) == codes.ResourceExhausted }

// advised adds to the error of a part that is too large what can be done about it.
func advised(err error) error {
	if !tooLarge(err) {
		return err
	}
	return fmt.Errorf("%w; raise max_send_message_size of containerd's grpc (grpc_max_send_msg_size of CRI-O), or remove containers that have ended", err)
}

// listContainers lists those that the filter takes; nil takes all.
func listContainers(ctx context.Context, r Runtime, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	response, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	stream := func() (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
		return r.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: filter})
	}
	return orStream(response.GetContainers(), err, stream, (*runtimeapi.StreamContainersResponse).GetContainers)
}

// listSandboxes lists those that the filter takes; nil takes all.
func listSandboxes(ctx context.Context, r Runtime, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	response, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	stream := func() (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
		return r.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: filter})
	}
	return orStream(response.GetItems(), err, stream, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
}

// orStream returns an answer, or if that was too large, what a stream has. A stream that breaks off is an error, for
// half a list is none.
func orStream[Response, Item any](answer []*Item, err error, open func() (grpc.ServerStreamingClient[Response], error),
	items func(*Response) []*Item) (all []*Item, _ error) {
	if !tooLarge(err) {
		return answer, err
	}
	stream, streamErr := open()
	for {
		var response *Response
		if streamErr == nil {
			response, streamErr = stream.Recv()
		}
		switch {
		case errors.Is(streamErr, io.EOF):
			return all, nil
		case status.Code(streamErr) == codes.Unimplemented:
			return nil, err
		case streamErr != nil:
			return nil, streamErr
		}
		all = append(all, items(response)...)
	}
}

func byID(sandboxes []*runtimeapi.PodSandbox) map[string]*runtimeapi.PodSandbox {
	all := make(map[string]*runtimeapi.PodSandbox, len(sandboxes))
	for _, s := range sandboxes {
		all[s.Id] = s
	}
	return all
}
