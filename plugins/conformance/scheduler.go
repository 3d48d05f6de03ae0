package conformance

import (
	"strings"

	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

var schedulerHalf = []Check{
	startTwice(func(t *target) { call(t, t.slow, t.scheduler.Start, &pb.SchedulerStartRequest{}) }),
	{"resources", `Start gives at least one resource: a name, or its beginning with a '*' at the end`,
		"the plugin is asked about pods alone that request one of them", func(t *target) { t.resource() }},
	{"sessions", "Fit by name is about the nodes of its session as they were when they were last acknowledged, in " +
		"order, while another session has one of the same name, and again after both have ended",
		"two schedulers may see a node at different times, and send all nodes again after they lost the connection",
		func(t *target) { t.sessions(); t.sessions() }},
	{"node unknown", "Fit is an error if it names a node, or a session, that was not sent, and the server goes on",
		"a guess would be taken for an answer",
		func(t *target) { t.unknown("", "unknown"); t.unknown("conformance-unknown", "unknown") }},
	{"fit again", "Fit answers a question the same again, and 64 times at once",
		"nothing is taken by asking; the scheduler asks in each attempt, and about chunks of nodes in parallel",
		sameFit},
	{"fit bad requests", "Fit of a pod that requests -1 or 2^62 refuses it or says an error, and the server goes on",
		"pods' authors write what they like in the annotation", func(t *target) {
			t.fitOrRefuse(&pb.FitRequest{Pod: t.podWith(-1), Nodes: t.someNodes()})
			t.fitOrRefuse(&pb.FitRequest{Pod: t.podWith(1 << 62), Nodes: t.someNodes()})
		}},
	{"fit empty request", "Fit without pod and nodes says nothing or an error, and the server goes on",
		"a call that is not understood must not end the process",
		func(t *target) { t.fitOrRefuse(&pb.FitRequest{}) }},
	{"fit cancelled", "Fit is answered after calls that were cancelled",
		"the scheduler cancels what it does not need any more, once it has enough nodes", fitCancelled},
	{"fit 5,000 nodes", "Fit answers for 64 of 5,120 nodes within a second, each time",
		"it is the deadline of the scheduler, whose pods wait meanwhile", fitManyNodes},
	{"allocate again", "Allocate chooses for a pod on a node the same each time, of the pod's containers alone",
		"it keeps nothing: the scheduler takes what it chose, or asks again", allocateAgain},
}

// unknown wants that Fit refuses to answer about a node that the session does not have.
func (t *target) unknown(session, node string) {
	t.refused(try(t.ctx, t.quick, t.scheduler.Fit,
		&pb.FitRequest{Pod: t.podWith(1), Session: session, Names: []string{node}}))
}

func sameFit(t *target) {
	request := &pb.FitRequest{Pod: t.podWith(1), Nodes: t.someNodes()}
	same(func() *pb.FitResponse { return t.fit(request) })
}

// fitOrRefuse wants verdicts, which must be valid, or an error of a server that goes on.
func (t *target) fitOrRefuse(r *pb.FitRequest) {
	got, err := try(t.ctx, t.quick, t.scheduler.Fit, r)
	if err != nil {
		t.refused(got, err)
		return
	}
	valid(r, got)
}

func fitCancelled(t *target) {
	request := &pb.FitRequest{Pod: t.podWith(1), Nodes: t.someNodes()}
	valid(request, cancelled(t, t.quick, t.scheduler.Fit, request))
}

func allocateAgain(t *target) {
	request := &pb.AllocateRequest{Pod: t.podWith(1), Node: t.nodeWith("four", 4)}
	fit := t.fit(&pb.FitRequest{Pod: request.GetPod(), Nodes: []*pb.NodeInfo{request.GetNode()}}).GetVerdicts()[0]
	if !fit.GetFits() {
		ensure(Skipped("a pod that requests 1 of " + t.resource() + " does not fit a node that has 4: " +
			fit.GetReasons()[0].GetText()))
	}
	got := same(func() *pb.AllocateResponse { return call(t, t.quick, t.scheduler.Allocate, request) })
	must(got.GetChanges().ChangeIn(request.GetPod().Info()))
}

// podWith is a pod that requests n of the plugin's resource.
func (t *target) podWith(n int64) *pb.PodInfo { return pod(nil, map[string]int64{t.resource(): n}) }

// nodeWith is a node that has n of the plugin's resource.
func (t *target) nodeWith(name string, n int64) *pb.NodeInfo {
	has := map[string]int64{t.resource(): n}
	return &pb.NodeInfo{Name: name, Capacity: has, Allocatable: has, KubeCapacity: has, KubeAllocatable: has}
}

// someNodes are nodes that have something of the resource, and one that has nothing.
func (t *target) someNodes() []*pb.NodeInfo {
	return []*pb.NodeInfo{t.nodeWith("four", 4), t.nodeWith("one", 1), {Name: "none"}}
}

// findResource returns a resource that the plugin answers for.
func (t *target) findResource() string {
	got := call(t, t.quick, t.scheduler.Start, &pb.SchedulerStartRequest{})
	ensure(got.Check())
	return strings.ReplaceAll(got.GetResources()[0], "*", "conformance")
}

// fit returns the verdicts, which must be valid.
func (t *target) fit(r *pb.FitRequest) *pb.FitResponse {
	got := call(t, t.quick, t.scheduler.Fit, r)
	valid(r, got)
	return got
}

func valid(r *pb.FitRequest, got *pb.FitResponse) {
	ensure(got.Check(len(r.GetNames()) + len(r.GetNodes())))
	for i, v := range got.GetVerdicts() {
		if !v.GetFits() && len(v.GetReasons()) == 0 {
			fail("node %d: the pod does not fit, and there is no reason", i)
		}
		for _, reason := range v.GetReasons() {
			if reason.GetText() == "" || strings.Contains(reason.GetText(), "\n") {
				fail("node %d: the reason is %q: want a line", i, reason.GetText())
			}
		}
		if _, err := v.GetChanges().ChangeIn(r.GetPod().Info()); err != nil {
			fail("node %d: %w", i, err)
		}
	}
}
