package deviceplugins

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Commands of the stories in testdata/scenarios, which run with the plugin of plugins/example:
//
//	node name=a widgets=2x3         a node with 2 boards of 3 widgets; or its annotation as text
//	delete-node name=a
//	schedule pod=p [ns=] [priority=] [bind] lines "[init|sidecar] container resource=count ...",
//	                                resources of the spec, and "annotation {...}": to Reserve, on the
//	                                best node; with bind, the API shows it as bound there then
//	retry pod=p [bind]              the same once more
//	bind pod=p                      what the Binding says, which the API then shows
//	unreserve pod=p
//	end pod=p [phase=Succeeded]     it is deleted; with a phase, it completes
//	annotate pod=p                  somebody changes the annotation of the pod to this text
//	recreate pod=p                  the API shows another pod of its name as an update of it; lines as
//	                                for schedule
//	bound pod=p node=a              bound by somebody else; lines as for schedule, none for a pod that is known
//	preempt pod=p node=a [without=(q)] [with=(r)]  would it fit
//	mood method=M is=panic          of the plugin
//	again                           what failed is tried again
//	used node=a
//	restart                         a new scheduler reads what the API shows
//
// An answer ends with the pods that are tried again, if any.

// What a plugin gave a pod is the pod's until it has ended, is given to no other, and is known after a
// restart. Pods that wait for it are tried when it may help them; a plugin that panics fails one pod.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &story{nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}, states: map[string]fwk.CycleState{}}
		s.restart(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if activated := s.requeued(); len(activated) > 0 {
				out += "activated: " + strings.Join(activated, " ") + "\n"
			}
			return out
		})
	})
}

type story struct {
	*rig
	plugin *moody
	nodes  map[string]*v1.Node
	pods   map[string]*v1.Pod
	states map[string]fwk.CycleState
	chosen string
}

func (s *story) restart(t *testing.T) {
	s.plugin = newMoody()
	s.rig = newRig(t, s.plugin)
	// In any order: pods may come before their nodes.
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		s.create(t, s.pods[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		s.cache.setNode(s.nodes[name])
	}
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	arg := func(name string) string {
		var value string
		d.MaybeScanArgs(t, name, &value)
		return value
	}
	pod, node := s.pods[arg("pod")], s.nodes[arg("node")]
	switch d.Cmd {
	case "node":
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: arg("name")}}
		if widgets := arg("widgets"); widgets != "" {
			n = widgetNode(t, n.Name, widgets)
		} else if d.Input != "" {
			n.Annotations = map[string]string{assignment.Annotation: d.Input}
		}
		s.nodes[n.Name] = n
		s.cache.setNode(n)
	case "delete-node":
		s.cache.deleteNode(s.nodes[arg("name")])
		delete(s.nodes, arg("name"))
	case "schedule":
		pod = parsePod(t, arg("pod"), arg("ns"), arg("priority"), d.Input)
		s.pods[pod.Name] = pod
		s.create(t, pod)
		fallthrough
	case "retry":
		out := s.schedule(t, pod)
		if d.HasArg("bind") {
			s.bind(t, pod)
			if s.pods[pod.Name].Spec.NodeName == "" {
				t.Fatalf("pod %s is not bound: %s", pod.Name, out)
			}
		}
		return out
	case "bind":
		return s.bind(t, pod)
	case "unreserve":
		s.Unreserve(s.ctx, s.states[pod.Name], pod, s.chosen)
	case "end":
		delete(s.pods, pod.Name)
		if phase := arg("phase"); phase != "" {
			pod = pod.DeepCopy()
			pod.Status.Phase = v1.PodPhase(phase)
			s.cache.setPod(pod)
			break
		}
		if err := s.known.Delete(pod); err != nil {
			t.Fatal(err)
		}
		s.cache.deletePod(pod)
	case "annotate":
		pod = pod.DeepCopy()
		pod.Annotations[assignment.Annotation] = d.Input
		s.pods[pod.Name] = pod
		s.cache.setPod(pod)
	case "recreate":
		again := parsePod(t, pod.Name, pod.Namespace, "", d.Input)
		again.UID = pod.UID + "-again"
		s.pods[pod.Name] = again
		if err := s.known.Update(again); err != nil {
			t.Fatal(err)
		}
		informer.Handler(s.cache.setPod, s.cache.deletePod, nil).OnUpdate(pod, again)
	case "bound":
		if d.Input != "" {
			pod = parsePod(t, arg("pod"), "", "", d.Input)
		}
		pod = pod.DeepCopy()
		pod.Spec.NodeName = arg("node")
		s.pods[pod.Name] = pod
		s.cache.setPod(pod)
	case "preempt":
		return s.preempt(t, d, pod, node)
	case "mood":
		s.plugin.set(arg("method"), arg("is"))
	case "again":
		s.cache.again()
	case "used":
		n := s.cache.host.Node(arg("node"))
		if n == nil {
			return "unknown\n"
		}
		return amountsText(n.Info().Used)
	case "restart":
		s.restart(t)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return s.recorded()
}

func (s *story) recorded() string {
	select {
	case event := <-s.recorder.Events:
		return "event: " + event + "\n"
	default:
		return ""
	}
}

func parsePod(t *testing.T, name, ns, priority, text string) *v1.Pod {
	t.Helper()
	if ns == "" {
		ns = "default"
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, UID: apitypes.UID(ns + "-" + name), Annotations: map[string]string{}}}
	p.Spec.SchedulerName = v1.DefaultSchedulerName
	if priority != "" {
		n, err := strconv.ParseInt(priority, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		p.Spec.Priority = new(int32(n))
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if note, ok := strings.CutPrefix(line, "annotation "); ok {
			p.Annotations[assignment.Annotation] = note
			continue
		}
		if other, ok := strings.CutPrefix(line, "annotated "); ok {
			key, note, _ := strings.Cut(other, " ")
			p.Annotations[key] = note
			continue
		}
		fields := strings.Fields(line)
		role := ""
		if fields[0] == "init" || fields[0] == "sidecar" {
			role, fields = fields[0], fields[1:]
		}
		c := v1.Container{Name: fields[0], Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
		for _, request := range fields[1:] {
			what, count, _ := strings.Cut(request, "=")
			c.Resources.Requests[v1.ResourceName(what)] = resource.MustParse(count)
		}
		switch role {
		case "sidecar":
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			fallthrough
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// schedule runs the cycle to Reserve, and tells what each node said.
func (s *story) schedule(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	state := framework.NewCycleState()
	s.states[pod.Name] = state
	if _, status := s.PreFilter(s.ctx, state, pod, nil); status.IsSkip() {
		return "asks nothing\n"
	} else if !status.IsSuccess() {
		return fmt.Sprintf("%s: %s\n", status.Code(), status.Message())
	}
	var out strings.Builder
	var scores fwk.NodeScoreList
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := frameworkNode(s.nodes[name])
		if status := s.Filter(s.ctx, state, pod, n); !status.IsSuccess() {
			fmt.Fprintf(&out, "%s: %s: %s\n", name, status.Code(), status.Message())
			continue
		}
		score, status := s.Score(s.ctx, state, pod, n)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		scores = append(scores, fwk.NodeScore{Name: name, Score: score})
	}
	if len(scores) == 0 {
		return out.String()
	}
	s.NormalizeScore(s.ctx, state, pod, scores)
	for _, n := range scores {
		fmt.Fprintf(&out, "%s: %d\n", n.Name, n.Score)
	}
	slices.SortStableFunc(scores, func(x, y fwk.NodeScore) int { return int(y.Score - x.Score) })
	s.chosen = scores[0].Name
	if status := s.Reserve(s.ctx, state, pod, s.chosen); !status.IsSuccess() {
		fmt.Fprintf(&out, "reserve on %s: %s: %s\n", s.chosen, status.Code(), status.Message())
		s.Unreserve(s.ctx, state, pod, s.chosen)
		return out.String()
	}
	held, ok := s.cache.hold(pod.UID)
	if !ok {
		return out.String() + "nothing from plugins\n"
	}
	out.WriteString(allocation(held))
	return out.String()
}

// allocation says what each container got, without what all the names share.
func allocation(held hold) string {
	var lines []string
	for name, c := range held.info.Containers() {
		var got []string
		for _, from := range c.AllocateFrom {
			got = append(got, strings.TrimPrefix(string(from), types.DeviceGroupPrefix+"/"))
		}
		if slices.Sort(got); len(got) > 0 {
			lines = append(lines, fmt.Sprintf("%s on %s: %s\n", name, held.node, strings.Join(got, " ")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func amountsText(list types.ResourceList) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintf(&out, "%s %d\n", strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/"), list[name])
	}
	return out.String()
}

func (s *story) bind(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	status := s.Bind(s.ctx, s.states[pod.Name], pod, s.chosen)
	if status.IsSkip() {
		return "left to DefaultBinder\n"
	}
	if !status.IsSuccess() {
		return fmt.Sprintf("%s: %s\n", status.Code(), status.Message())
	}
	all := s.bindings()
	sent := all[len(all)-1]
	bound := pod.DeepCopy()
	bound.Spec.NodeName = sent.Target.Name
	maps.Copy(bound.Annotations, sent.Annotations)
	s.pods[pod.Name] = bound
	if err := s.known.Update(bound); err != nil {
		t.Fatal(err)
	}
	s.cache.setPod(bound)
	return sent.Annotations[assignment.Annotation] + "\n"
}

func (s *story) preempt(t *testing.T, d *datadriven.TestData, pod *v1.Pod, node *v1.Node) string {
	t.Helper()
	names := func(key string) []string {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return a.Vals
			}
		}
		return nil
	}
	state := framework.NewCycleState()
	if _, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSuccess() {
		return status.Message() + "\n"
	}
	n, imagined := frameworkNode(node), state.Clone()
	for _, name := range names("without") {
		s.RemovePod(s.ctx, imagined, pod, frameworkPod(t, s.pods[name]), n)
	}
	for _, name := range names("with") {
		s.AddPod(s.ctx, imagined, pod, frameworkPod(t, s.pods[name]), n)
	}
	out := "fits\n"
	if status := s.Filter(s.ctx, imagined, pod, n); !status.IsSuccess() {
		out = fmt.Sprintf("%s: %s\n", status.Code(), status.Message())
	}
	for _, name := range slices.Backward(names("without")) { // one by one back again
		s.AddPod(s.ctx, imagined, pod, frameworkPod(t, s.pods[name]), n)
	}
	for _, name := range names("with") {
		s.RemovePod(s.ctx, imagined, pod, frameworkPod(t, s.pods[name]), n)
	}
	was, is := s.Filter(s.ctx, state, pod, n), s.Filter(s.ctx, imagined, pod, n)
	if was.Code() != is.Code() || was.Message() != is.Message() {
		out += fmt.Sprintf("undone it is %v, and was %v\n", is, was)
	}
	return out
}
