package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/kubecri/soplugins/nodeinfo"
	"github.com/kubeslot/kubeslot/types"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// node and container are the names in what the checks send.
const (
	node      = "conformance-node"
	container = "conformance"
)

var deviceHalf = []Check{
	{"own variables", "OwnVariables gives names of variables",
		"kubecri sets them in containers that get none of the plugin's devices", ownVariables},
	{"watch", "Watch sends the node's state within a second: amounts >= 0, allocatable at most the capacity",
		"until it comes the node has none of the plugin's resources",
		with((*target).state, func(context.Context, *target, *pb.NodeState) error { return nil })},
	{"watch again", "Watch sends the whole state when it was ended and is called again, and in two streams at once",
		"hosts are restarted, and an old one may not have ended yet", watchAgain},
	{"allocate nothing", "Allocate gives nothing to a container that was assigned none of the plugin's devices",
		"kubecri asks all plugins about a container that was assigned something", allocateNothing},
	{"allocate again", "Allocate of an assigned device succeeds within 5 s, and gives the same the second time",
		"the kubelet creates a container again after a failure or a restart",
		with((*target).assignment, sameAllocation(once))},
	{"allocate at once", "64 calls of Allocate at once give all the same",
		"the containers of several pods start at once", with((*target).assignment, sameAllocation(atOnce))},
	{"allocate unknown container",
		"Allocate for a container that the pod does not have is an error, and the server goes on",
		"a container without what it needs must not start",
		refuses(&pb.DeviceAllocateRequest{Pod: pod(nil, nil), Container: "other"})},
	{"allocate missing device",
		"Allocate of a device that the node does not have is an error, and the server goes on",
		"the device may have been taken out after the pod was bound", with((*target).assignment, allocateMissing)},
	{"allocate empty request", "Allocate with an empty request is an error, and the server goes on",
		"a call that is not understood must not end the process, which other containers need",
		refuses(&pb.DeviceAllocateRequest{})},
	{"allocate cancelled", "Allocate is answered after calls that were cancelled",
		"the kubelet gives up a container, and creates it again", allocateCancelled},
	{"held", "Held takes a list and a change, and ends when the host ends it",
		"an error has the host connect again", held},
}

func ownVariables(ctx context.Context, t *target) error {
	got, err := call(ctx, quick, t.device.OwnVariables, &pb.OwnVariablesRequest{})
	if status.Code(err) == codes.Unimplemented {
		return notImplemented
	}
	for name := range got.GetVariables() {
		if problems := validation.IsRelaxedEnvVarName(name); len(problems) > 0 {
			return fmt.Errorf("%q is no name of a variable: %s", name, strings.Join(problems, "; "))
		}
	}
	return err
}

func watchAgain(ctx context.Context, t *target) error {
	_, err := same(func() (*pb.NodeState, error) { return t.state(ctx) }, atOnce)
	return err
}

func allocateNothing(ctx context.Context, t *target) error {
	got, err := t.allocate(ctx, map[string]string{"example.com/another-plugins": "example.com/another-plugins-0"})
	if err == nil && proto.Size(got) > 0 {
		err = fmt.Errorf("it gave %v", got)
	}
	return err
}

// refuses returns a check that Allocate refuses the request.
func refuses(r *pb.DeviceAllocateRequest) func(context.Context, *target) error {
	return func(ctx context.Context, t *target) error {
		_, err := call(ctx, slow, t.device.Allocate, r)
		return t.refused(ctx, err)
	}
}

func allocateMissing(ctx context.Context, t *target, assigned map[string]string) error {
	for request := range assigned {
		assigned[request] = missing(request)
	}
	_, err := t.allocate(ctx, assigned)
	return t.refused(ctx, err)
}

func allocateCancelled(ctx context.Context, t *target) error {
	return afterCancelled(ctx, func(ctx context.Context) error { _, err := t.allocate(ctx, nil); return err })
}

func pod(allocateFrom map[string]string, requests map[string]int64) *pb.PodInfo {
	return &pb.PodInfo{Name: "conformance", Namespace: "default", Uid: "00000000-0000-4000-8000-000000000000",
		RunningContainers: map[string]*pb.ContainerInfo{
			container: {KubeRequests: requests, Requests: requests, DevRequests: requests, AllocateFrom: allocateFrom}}}
}

// state returns the first state that Watch sends, if it is valid.
func (t *target) state(ctx context.Context) (*pb.NodeState, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	stream, err := t.device.Watch(ctx, &pb.WatchRequest{})
	if err != nil {
		return nil, err
	}
	s, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("no state within %s: %w", quick, err)
	}
	for _, p := range [][2]map[string]int64{{s.GetCapacity(), s.GetAllocatable()},
		{s.GetKubeCapacity(), s.GetKubeAllocatable()}} {
		for name, n := range p[1] {
			if n > p[0][name] {
				return nil, fmt.Errorf("%d of %s are allocatable, and the capacity is %d", n, name, p[0][name])
			}
		}
	}
	_, err = nodeinfo.Check(s.Info())
	return s, err
}

// assignment is what a container has that was assigned the first device of the node: each of the
// device's resources, from itself.
func (t *target) assignment(ctx context.Context) (map[string]string, error) {
	state, err := t.state(ctx)
	if err != nil {
		return nil, err
	}
	var device string
	assigned := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(state.GetAllocatable())) {
		if !strings.HasPrefix(name, types.DeviceGroupPrefix+"/") || state.GetAllocatable()[name] == 0 {
			continue
		}
		if device == "" {
			device = name[:strings.LastIndex(name, "/")+1]
		}
		if strings.HasPrefix(name, device) {
			assigned[name] = name
		}
	}
	if len(assigned) == 0 {
		return nil, Skipped("the node has no resource named " + types.DeviceGroupPrefix + "/..., and what else " +
			"the plugin's scheduler assigns is not known")
	}
	return assigned, nil
}

// missing is a resource named as another, resource/group/<kind>/<index>/<kind>/<index>/<leaf>, of
// which each index is that of no device.
func missing(resource string) string {
	parts := strings.Split(resource, "/")
	for i := 3; i < len(parts)-1; i += 2 {
		parts[i] = "999999"
	}
	return strings.Join(parts, "/")
}

func (t *target) allocate(ctx context.Context, assigned map[string]string) (*pb.DeviceAllocateResponse, error) {
	r := &pb.DeviceAllocateRequest{Pod: pod(assigned, nil), Container: container}
	return call(ctx, slow, t.device.Allocate, r)
}

// sameAllocation allocates once, and again as often as repeat does.
func sameAllocation(repeat func(func() error) error) func(context.Context, *target, map[string]string) error {
	return func(ctx context.Context, t *target, assigned map[string]string) error {
		_, err := same(func() (*pb.DeviceAllocateResponse, error) {
			got, err := t.allocate(ctx, assigned)
			if err == nil && proto.Size(got) == 0 {
				err = fmt.Errorf("the container was assigned %v and gets nothing", slices.Sorted(maps.Keys(assigned)))
			}
			return got, err
		}, repeat)
		return err
	}
}

// afterCancelled makes a call after others that were cancelled before they were answered.
func afterCancelled(ctx context.Context, f func(context.Context) error) error {
	_ = atOnce(func() error {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		return f(short)
	})
	return f(ctx)
}

func held(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	stream, err := t.device.Held(ctx)
	if err != nil {
		return err
	}
	holder := &pb.Holder{Namespace: "default", Pod: "conformance", Uid: "1", Container: container}
	errs := []error{stream.Send(&pb.HeldRequest{Holders: []*pb.Holder{holder}}),
		stream.Send(&pb.HeldRequest{Released: []*pb.Holder{holder}})}
	_, err = stream.CloseAndRecv()
	switch {
	case status.Code(err) == codes.Unimplemented:
		return notImplemented
	case err != nil:
		return err // why sending failed, too
	}
	return errors.Join(errs...)
}
