package brokers

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// manyPods is a Configuration whose Jobs have so many pods at once.
func manyPods(parallelism int, of *akriv0.BrokerLimits) *akriv0.Configuration {
	c := jobConfiguration(1, strings.Replace(jobSpec, `{`, fmt.Sprintf(`{"parallelism":%d,`, parallelism), 1))
	c.Spec.BrokerLimits = of
	c.Spec.BrokerProperties["K"] = "v" // which jobSpec needs
	return c
}

func (f *fleet) jobs() []batchv1.Job {
	f.Helper()
	var list batchv1.JobList
	if err := f.fake.List(f.Context(), &list); err != nil {
		f.Fatal(err)
	}
	return list.Items
}

// lookAt looks at the Instance of a Job, and at those that it woke.
func (f *fleet) lookAt(job *batchv1.Job) {
	f.Helper()
	f.look(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: job.Labels[naming.Instance]}})
	f.lookAtWoken()
}

func (f *fleet) expectJobs(what string, jobs, used, withheld int) {
	f.Helper()
	if got, s := len(f.jobs()), f.sum().Limit; got != jobs || s.Used != used || s.Withheld != withheld {
		f.Errorf("%s: %d Jobs, %+v; want %d, %d, %d withheld", what, got, s, jobs, used, withheld)
	}
}

// A Job that has ended has no part in the limits, though it stays.
func TestJobLimits(t *testing.T) {
	for name, limit := range map[string]akriv0.BrokerLimits{"total": {PerNode: 50, Total: 5}, "node": {PerNode: 5, Total: 50}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, manyPods(2, &limit), 3, false, "a")
			f.lookAtAll()
			f.lookAtAll()
			f.expectJobs("two of two pods", 2, 4, 2)
			f.restart()
			f.lookAtAll()
			f.expectJobs("the controller was killed", 2, 4, 2)
			job := &f.jobs()[0]
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			if err := f.fake.Status().Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			f.lookAt(job)
			f.expectJobs("one is complete", 3, 4, 0)
		})
	}
}

// A machine on the nodes' network that has 600 services, which both nodes reach, has no more of
// Jobs' pods made than of broker pods. docs/security.md has the numbers.
func TestJobsOfTheNetwork(t *testing.T) {
	f := newFleet(t, manyPods(1, nil), 600, true, "a", "b")
	f.lookAtAll()
	f.expectJobs("on two nodes", 100, 100, 500)
	if s := f.sum().Limit; s.NodesWithoutRoom != 2 {
		t.Errorf("%+v", s)
	}
	f.restart()
	f.lookAtAll()
	f.expectJobs("the controller was killed", 100, 100, 500)
}

// A node's stolen credential has as many of Jobs' pods made as the node may have, and
// takes no room of others.
func TestJobsOfAStolenNode(t *testing.T) {
	f := newFleet(t, manyPods(1, nil), 200, false, "a", "stolen")
	f.lookAtAll()
	of := map[string]int{}
	for _, job := range f.jobs() {
		of[f.inv.Device(job.Labels[naming.Instance]).Nodes[0]]++
	}
	if of["a"] != akriv0.DefaultBrokersPerNode || of["stolen"] != akriv0.DefaultBrokersPerNode {
		t.Errorf("Jobs of devices of %v", of)
	}
	if got, want := f.sum().Limit, (limits.Sum{Used: 100, Withheld: 300, FullNodes: 2, FirstFull: "a"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The pods of a Job that is gone count until they are gone: a device that comes and goes has
// no more made.
func TestPodsOfAJobThatIsGoneCount(t *testing.T) {
	f := newFleet(t, manyPods(1, &akriv0.BrokerLimits{PerNode: 1, Total: 10}), 2, false, "a")
	f.lookAtAll()
	f.expectJobs("one pod on the node", 1, 1, 1)
	job := &f.jobs()[0]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-the-job", Labels: job.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}}, Spec: corev1.PodSpec{NodeName: "a"}}
	if err := f.fake.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.lookAt(job)
	f.expectJobs("it counts with its Job", 1, 1, 1)
	if err := f.fake.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	f.lookAt(job)
	f.expectJobs("its Job is gone", 0, 1, 1)
	if err := f.fake.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.lookAt(job)
	f.expectJobs("it is gone", 1, 1, 0)
}
