package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

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
	startTwice(func(t *target) {
		optional(try(t.ctx, t.slow, t.device.Start, &pb.DeviceStartRequest{Node: node}))
	}),
	{"own variables", "OwnVariables gives names of variables",
		"kubecri sets them in containers that get none of the plugin's devices", ownVariables},
	{"watch", "Watch sends the node's state within a second: amounts >= 0, allocatable at most the capacity",
		"until it comes the node has none of the plugin's resources", func(t *target) { t.state() }},
	{"watch again", "Watch sends the whole state when it was ended and is called again, and in 64 streams at once",
		"hosts are restarted, and an old one may not have ended yet", func(t *target) { same(t.state) }},
	{"allocate nothing", "Allocate gives nothing to a container that was assigned none of the plugin's devices",
		"kubecri asks all plugins about a container that was assigned something", allocateNothing},
	{"allocate again",
		"Allocate of an assigned device succeeds within 5 s, and gives the same again, and 64 times at once",
		"the kubelet creates a container again after a failure, and those of several pods at once", sameAllocation},
	{"allocate unknown container",
		"Allocate for a container that the pod does not have is an error, and the server goes on",
		"a container without what it needs must not start",
		refuses(&pb.DeviceAllocateRequest{Pod: pod(nil, nil), Container: "other"})},
	{"allocate missing device",
		"Allocate of a device that the node does not have is an error, and the server goes on",
		"the device may have been taken out after the pod was bound", allocateMissing},
	{"allocate empty request", "Allocate with an empty request is an error, and the server goes on",
		"a call that is not understood must not end the process, which other containers need",
		refuses(&pb.DeviceAllocateRequest{})},
	{"allocate cancelled", "Allocate is answered after calls that were cancelled",
		"the kubelet gives up a container, and creates it again",
		func(t *target) { cancelled(t, t.slow, t.device.Allocate, allocation(nil)) }},
	{"held", "Held takes a list and a change, and ends when the host ends it",
		"an error has the host connect again", held},
}

func ownVariables(t *target) {
	got := optional(try(t.ctx, t.quick, t.device.OwnVariables, &pb.OwnVariablesRequest{}))
	for name := range got.GetVariables() {
		if problems := validation.IsRelaxedEnvVarName(name); len(problems) > 0 {
			fail("%q is no name of a variable: %s", name, strings.Join(problems, "; "))
		}
	}
}

func allocateNothing(t *target) {
	other := map[string]string{"example.com/another-plugins": "example.com/another-plugins-0"}
	if got := call(t, t.slow, t.device.Allocate, allocation(other)); proto.Size(got) > 0 {
		fail("it gave %v", got)
	}
}

func sameAllocation(t *target) {
	assigned := t.assignment()
	if got := same(func() *pb.DeviceAllocateResponse {
		return call(t, t.slow, t.device.Allocate, allocation(assigned))
	}); proto.Size(got) == 0 {
		fail("the container was assigned %v and gets nothing", slices.Sorted(maps.Keys(assigned)))
	}
}

// refuses returns a check that Allocate refuses the request.
func refuses(r *pb.DeviceAllocateRequest) func(*target) {
	return func(t *target) { t.refused(try(t.ctx, t.slow, t.device.Allocate, r)) }
}

// allocateMissing asks for resources named as others, resource/group/<kind>/<index>/<kind>/<index>/<leaf>,
// of which each index is that of no device.
func allocateMissing(t *target) {
	missing := map[string]string{}
	for request := range t.assignment() {
		parts := strings.Split(request, "/")
		for i := 3; i < len(parts)-1; i += 2 {
			parts[i] = "999999"
		}
		missing[request] = strings.Join(parts, "/")
	}
	refuses(allocation(missing))(t)
}

func held(t *target) {
	ctx, cancel := context.WithTimeout(t.ctx, t.slow)
	defer cancel()
	stream := must(t.device.Held(ctx))
	holder := &pb.Holder{Namespace: "default", Pod: "conformance", Uid: "1", Container: container}
	err := errors.Join(stream.Send(&pb.HeldRequest{Holders: []*pb.Holder{holder}}),
		stream.Send(&pb.HeldRequest{Released: []*pb.Holder{holder}}))
	optional(stream.CloseAndRecv()) // which says why sending failed
	ensure(err)
}

func pod(allocateFrom map[string]string, requests map[string]int64) *pb.PodInfo {
	return &pb.PodInfo{Name: "conformance", Namespace: "default", Uid: "00000000-0000-4000-8000-000000000000",
		RunningContainers: map[string]*pb.ContainerInfo{
			container: {KubeRequests: requests, Requests: requests, DevRequests: requests, AllocateFrom: allocateFrom}}}
}

func allocation(assigned map[string]string) *pb.DeviceAllocateRequest {
	return &pb.DeviceAllocateRequest{Pod: pod(assigned, nil), Container: container}
}

// state returns the first state that Watch sends, which must be valid.
func (t *target) state() *pb.NodeState {
	ctx, cancel := context.WithTimeout(t.ctx, t.quick)
	defer cancel()
	s, err := must(t.device.Watch(ctx, &pb.WatchRequest{})).Recv()
	if err != nil {
		fail("no state within %s: %w", t.quick, err)
	}
	for _, p := range [][2]map[string]int64{{s.GetCapacity(), s.GetAllocatable()},
		{s.GetKubeCapacity(), s.GetKubeAllocatable()}} {
		for name, n := range p[1] {
			if n > p[0][name] {
				fail("%d of %s are allocatable, and the capacity is %d", n, name, p[0][name])
			}
		}
	}
	must(nodeinfo.Check(s.Info()))
	return s
}

// findAssignment returns what a container has that was assigned the first device of the node: each of
// the device's resources, from itself.
func (t *target) findAssignment() map[string]string {
	allocatable := t.state().GetAllocatable()
	var device string
	assigned := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		if !strings.HasPrefix(name, types.DeviceGroupPrefix+"/") || allocatable[name] == 0 {
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
		ensure(Skipped("the node has no resource named " + types.DeviceGroupPrefix + "/..., and what else " +
			"the plugin's scheduler assigns is not known"))
	}
	return assigned
}
