package brokers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
)

// said is all that is read of a broker pod's status.
func said(f *facts, p *corev1.Pod) []any {
	why, failing := f.whyNotReady(p)
	ran, ended := ranFor(p, f.now), endedAt(p, f.now)
	return []any{isReady(p), isEnded(p), progress(p), why, failing, reasonEnded(p), whyEnded(p), ran, ended,
		usesClaim(p)}
}

// What the cache keeps of a pod and of a Job says the same as all of it.
func TestTrimmedBrokersSayTheSame(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(1e9+second, 0)) }
	start := at(1)
	exit := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error",
		Message:     "m",
		ContainerID: "i", StartedAt: at(2), FinishedAt: at(5)}}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(2)}}
	with := func(phase corev1.PodPhase, restarts int32, state, last corev1.ContainerState) corev1.PodStatus {
		c := corev1.ContainerStatus{Name: "c", RestartCount: restarts, State: state, LastTerminationState: last}
		return corev1.PodStatus{Phase: phase, StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{c}}
	}
	condition := func(phase corev1.PodPhase, c corev1.PodConditionType, s corev1.ConditionStatus) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: s}, {Type: c, Status: s, Reason: "Why", Message: "m"}}}
	}
	none := corev1.ContainerState{}
	initFails := with(corev1.PodPending, 0, exit, none)
	initFails.InitContainerStatuses, initFails.ContainerStatuses = initFails.ContainerStatuses, nil
	f := &facts{now: time.Unix(1e9+100, 0)}
	for name, status := range map[string]corev1.PodStatus{
		"new":        condition(corev1.PodPending, corev1.PodScheduled, corev1.ConditionFalse),
		"Ready":      condition(corev1.PodRunning, corev1.PodReady, corev1.ConditionTrue),
		"starting":   with(corev1.PodPending, 0, waits("ContainerCreating"), none),
		"no image":   with(corev1.PodPending, 0, waits("ErrImagePull"), none),
		"crashes":    with(corev1.PodRunning, 4, waits(crashLoop), exit),
		"restarts":   with(corev1.PodRunning, 4, runs, exit),
		"init fails": initFails,
		"not ready":  with(corev1.PodRunning, 0, runs, none),
		"failed":     with(corev1.PodFailed, 0, exit, none),
		"evicted":    {Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node had memory pressure"},
	} {
		for _, node := range []string{"", "a"} {
			spec := corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: brokerspec.PodClaim}}}
			whole := &corev1.Pod{Spec: spec, Status: status}
			whole.ObjectMeta = metav1.ObjectMeta{Name: "p", UID: "u", CreationTimestamp: at(0),
				DeletionTimestamp: &start,
				Labels:            naming.PodLabels("cam", instanceName, "a", "p"),
				OwnerReferences:   []metav1.OwnerReference{naming.OwnedBy(instanceKind, theInstance())},
				Annotations: map[string]string{naming.SpecHash: "h", naming.PropertiesHash: "p",
					naming.Failures: "2"}}
			kept, err := watch.TrimMade(whole.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			trimmed := kept.(*corev1.Pod)
			if d := cmp.Diff(said(f, whole), said(f, trimmed)); d != "" {
				t.Errorf("%s on %q: (-whole +trimmed)\n%s", name, node, d)
			}
			if d := cmp.Diff(whole.ObjectMeta, trimmed.ObjectMeta); d != "" || len(trimmed.Spec.Containers) != 0 {
				t.Errorf("%s: %d containers, (-whole +trimmed)\n%s", name, len(trimmed.Spec.Containers), d)
			}
		}
	}
	two, suspended := int32(2), true
	job := &batchv1.Job{Spec: batchv1.JobSpec{Parallelism: &two, Suspend: &suspended}}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	job.Annotations = map[string]string{naming.JobHeld: "x", naming.SpecHash: "h"}
	trimmed, err := watch.TrimMade(job.DeepCopy())
	if d := cmp.Diff(job, trimmed); d != "" || err != nil {
		t.Errorf("%v, (-whole +trimmed)\n%s", err, d)
	}
}
