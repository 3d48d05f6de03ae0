package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// manyNodes are those of a large cluster, sent and asked for by chunk.
const manyNodes, chunk = 5000, 500

var schedulerHalf = []Check{
	{"resources", `Start gives at least one resource: a name, or its beginning with a '*' at the end`,
		"the plugin is asked about pods alone that request one of them",
		with((*target).resource, func(context.Context, *target, string) error { return nil })},
	{"nodes in order", "each message of Nodes is acknowledged, in order, in two streams at once",
		"the scheduler names nodes in Fit once their last change was acknowledged",
		with((*target).resource, nodesInOrder)},
	{"sessions apart", "Fit by name is about the nodes of its session, when another has one of the same name",
		"two schedulers may see a node at different times", with((*target).resource, sessionsApart)},
	{"nodes again", "a stream that was ended and is opened again gives the plugin all nodes, whole",
		"the scheduler sends all nodes again after it has lost the connection", with((*target).resource, nodesAgain)},
	{"node unknown", "Fit is an error if it names a node, or a session, that was not sent, and the server goes on",
		"a guess would be taken for an answer", with((*target).resource, nodeUnknown)},
	{"fit is pure", "Fit answers a question 100 times the same",
		"nothing is taken by asking; the scheduler asks about a pod in each attempt",
		with((*target).resource, sameFit(oftentimes))},
	{"fit at once", "64 calls of Fit at once give all the same",
		"the scheduler asks about chunks of nodes in parallel", with((*target).resource, sameFit(atOnce))},
	{"fit bad requests", "Fit of a pod that requests -1 or 2^62 refuses it or says an error, and the server goes on",
		"pods' authors write what they like in the annotation", with((*target).resource, fitBadRequests)},
	{"fit empty request", "Fit without pod and nodes says nothing or an error, and the server goes on",
		"a call that is not understood must not end the process", fitEmptyRequest},
	{"fit cancelled", "Fit is answered after calls that were cancelled",
		"the scheduler cancels what it does not need any more, once it has enough nodes",
		with((*target).resource, fitCancelled)},
	{"fit 5,000 nodes", "Fit answers for 500 of 5,000 nodes within a second, each time",
		"it is the deadline of the scheduler, whose pods wait meanwhile", with((*target).resource, fitManyNodes)},
	{"allocate again", "Allocate chooses for a pod on a node twice the same, of the pod's containers alone",
		"it keeps nothing: the scheduler takes what it chose, or asks again", with((*target).resource, allocateAgain)},
}

func nodeUnknown(ctx context.Context, t *target, resource string) error {
	for _, session := range []string{"", "conformance-unknown"} {
		_, err := call(ctx, quick, t.scheduler.Fit,
			&pb.FitRequest{Pod: pod(nil, one(resource)), Session: session, Names: []string{"unknown"}})
		if err := t.refused(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

func fitBadRequests(ctx context.Context, t *target, resource string) error {
	for _, n := range []int64{-1, 1 << 62} {
		_, err := t.fit(ctx, &pb.FitRequest{Pod: pod(nil, map[string]int64{resource: n}), Nodes: some(resource)})
		if err == nil {
			continue
		}
		if err := t.refused(ctx, err); err != nil {
			return fmt.Errorf("%d of %s: %w", n, resource, err)
		}
	}
	return nil
}

func fitEmptyRequest(ctx context.Context, t *target) error {
	got, err := call(ctx, quick, t.scheduler.Fit, &pb.FitRequest{})
	if err != nil {
		return t.refused(ctx, err)
	}
	if len(got.GetVerdicts()) > 0 {
		return fmt.Errorf("it says %v", got)
	}
	return nil
}

func fitCancelled(ctx context.Context, t *target, resource string) error {
	return afterCancelled(ctx, func(ctx context.Context) error {
		_, err := t.fit(ctx, &pb.FitRequest{Pod: pod(nil, one(resource)), Nodes: some(resource)})
		return err
	})
}

func one(resource string) map[string]int64 { return map[string]int64{resource: 1} }

// nodeWith is a node that has count of the resource.
func nodeWith(name, resource string, count int64) *pb.NodeInfo {
	has := map[string]int64{resource: count}
	return &pb.NodeInfo{Name: name, Capacity: has, Allocatable: has, KubeCapacity: has, KubeAllocatable: has}
}

// some are nodes that have something of the resource, and one that has nothing.
func some(resource string) []*pb.NodeInfo {
	return []*pb.NodeInfo{nodeWith("four", resource, 4), nodeWith("one", resource, 1), {Name: "none"}}
}

// resource returns a resource that the plugin answers for.
func (t *target) resource(ctx context.Context) (string, error) {
	got, err := call(ctx, quick, t.scheduler.Start, &pb.SchedulerStartRequest{})
	if err == nil {
		err = got.Check()
	}
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(got.GetResources()[0], "*", "conformance"), nil
}

// fit returns the verdicts, if they are valid.
func (t *target) fit(ctx context.Context, r *pb.FitRequest) (*pb.FitResponse, error) {
	got, err := call(ctx, quick, t.scheduler.Fit, r)
	if err == nil {
		err = got.Check(len(r.GetNames()) + len(r.GetNodes()))
	}
	if err != nil {
		return nil, err
	}
	for i, v := range got.GetVerdicts() {
		if !v.GetFits() && len(v.GetReasons()) == 0 {
			return nil, fmt.Errorf("node %d: the pod does not fit, and there is no reason", i)
		}
		for _, reason := range v.GetReasons() {
			if reason.GetText() == "" || strings.Contains(reason.GetText(), "\n") {
				return nil, fmt.Errorf("node %d: the reason is %q: want a line", i, reason.GetText())
			}
		}
		if err := v.GetChanges().Check(r.GetPod().Info()); err != nil {
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
	}
	return got, nil
}

// sameFit asks once, and again as often as repeat does.
func sameFit(repeat func(func() error) error) func(context.Context, *target, string) error {
	return func(ctx context.Context, t *target, resource string) error {
		request := &pb.FitRequest{Pod: pod(nil, one(resource)), Nodes: some(resource)}
		_, err := same(func() (*pb.FitResponse, error) { return t.fit(ctx, request) }, repeat)
		return err
	}
}

func allocateAgain(ctx context.Context, t *target, resource string) error {
	request := &pb.AllocateRequest{Pod: pod(nil, one(resource)), Node: some(resource)[0]}
	fit, err := t.fit(ctx, &pb.FitRequest{Pod: request.GetPod(), Nodes: []*pb.NodeInfo{request.GetNode()}})
	if err != nil {
		return err
	}
	if !fit.GetVerdicts()[0].GetFits() {
		return Skipped("a pod that requests 1 of " + resource + " does not fit a node that has 4: " +
			fit.GetVerdicts()[0].GetReasons()[0].GetText())
	}
	first, err := same(func() (*pb.AllocateResponse, error) {
		return call(ctx, quick, t.scheduler.Allocate, request)
	}, once)
	return errors.Join(err, first.GetChanges().Check(request.GetPod().Info()))
}
