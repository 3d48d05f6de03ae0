package brokers

import (
	"context"
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(err)
	}
}

const jobSpec = `{"backoffLimit":4,"template":{"metadata":{"labels":{"app":"mine","of":"{{INSTANCE}}"},"annotations":{"k":"{{property:K}}"}},` +
	`"spec":{"restartPolicy":"Never","containers":[{"name":"b","args":["{{SLOT_COUNT}}"],"resources":{"limits":{"{{PLACEHOLDER}}":"2"}}}]}}}`

func jobConfiguration(generation int64, spec string) *akriv0.Configuration {
	c := configuration(5, "")
	c.Generation = generation
	c.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerJobSpec: &runtime.RawExtension{Raw: []byte(spec)}}
	return c
}

func TestRenderJob(t *testing.T) {
	f := newFacts(t, jobConfiguration(7, jobSpec), "a")
	job, err := renderJob(f)
	if err != nil {
		t.Fatal(err)
	}
	template := job.Spec.Template
	if job.Name != "cam-8120fe-7-job" || *job.Spec.BackoffLimit != 4 || job.OwnerReferences[0].UID != "instance-uid" ||
		template.Annotations["k"] != "v" || template.Labels["of"] != "cam-8120fe" || template.Spec.Affinity != nil {
		t.Errorf("%+v", job)
	}
	for key, want := range naming.JobLabels("cam", instanceName, job.Name) {
		if job.Labels[key] != want || template.Labels[key] != want {
			t.Errorf("label %s is %q, of its pods %q, want %q", key, job.Labels[key], template.Labels[key], want)
		}
	}
	if !*job.Spec.Suspend || !isHeld(job) || *released(job).Spec.Suspend || isHeld(released(job)) || released(job).Annotations[naming.SpecHash] != f.spec.hash {
		t.Errorf("held until it is noted: %v, %v; released: %+v", *job.Spec.Suspend, job.Annotations, released(job))
	}
	own, err := renderJob(newFacts(t, jobConfiguration(7, strings.Replace(jobSpec, `{`, `{"suspend":true,`, 1)), "a"))
	if err != nil || !*own.Spec.Suspend || isHeld(own) {
		t.Errorf("suspended by its spec: %+v, %v", own, err)
	}
	c := template.Spec.Containers[0]
	if q := c.Resources.Limits["akri.sh/cam-8120fe"]; c.Args[0] != "2" || q.Value() != 2 || len(c.Resources.Limits) != 1 {
		t.Errorf("container %+v", c)
	}
	if _, err := renderJob(newFacts(t, jobConfiguration(1, strings.Replace(jobSpec, "{{SLOT_COUNT}}", "{{NODE}}", 1)), "a")); err == nil || !strings.Contains(err.Error(), "spec.nodeName") {
		t.Errorf("{{NODE}} in a Job: %v", err)
	}
}

func TestDecideJobs(t *testing.T) {
	const other = `{"template":{"spec":{"containers":[{"name":"other"}]}}}`
	hash := parse(jobConfiguration(1, jobSpec)).hash
	job := func(generation int64, hash string, state batchv1.JobConditionType) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: naming.Job(instanceName, generation), Annotations: map[string]string{naming.SpecHash: hash}}}
		if state != "" {
			j.Status.Conditions = []batchv1.JobCondition{{Type: state, Status: corev1.ConditionTrue}}
		}
		return j
	}
	held := job(1, hash, "")
	held.Annotations[naming.JobHeld] = "yes"
	goingJob := job(1, hash, "")
	goingJob.DeletionTimestamp = &metav1.Time{Time: start}
	type jobs = []*batchv1.Job
	for name, tc := range map[string]struct {
		spec           string
		generation     int64
		jobs           jobs
		done           string // on the Instance
		create, record string // "-" clears
		start          bool
		remove         int
		desired, ready int
		expected       bool
		gone           bool // no node reports the device
	}{
		"first":                          {spec: jobSpec, generation: 1, create: "cam-8120fe-1-job", record: hash, start: true, desired: 1, expected: true},
		"made, not noted":                {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, "")}, record: hash, desired: 1, expected: true},
		"made and held, not noted":       {spec: jobSpec, generation: 1, jobs: jobs{held}, record: hash, start: true, desired: 1, expected: true},
		"noted and held":                 {spec: jobSpec, generation: 1, jobs: jobs{held}, done: hash, start: true, desired: 1, expected: true},
		"held, another spec":             {spec: other, generation: 2, jobs: jobs{held}, done: hash, create: "cam-8120fe-2-job", record: "other", start: true, remove: 1, desired: 1, expected: true},
		"runs":                           {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, "")}, done: hash, desired: 1, expected: true},
		"complete":                       {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, batchv1.JobComplete)}, done: hash, desired: 1, ready: 1},
		"failed":                         {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, batchv1.JobFailed)}, done: hash, desired: 1},
		"removed by its TTL":             {spec: jobSpec, generation: 1, done: hash, desired: 1, ready: 1},
		"capacity changed":               {spec: jobSpec, generation: 2, jobs: jobs{job(1, hash, "")}, done: hash, desired: 1, expected: true},
		"another spec":                   {spec: other, generation: 2, jobs: jobs{job(1, hash, "")}, done: hash, create: "cam-8120fe-2-job", record: "other", start: true, desired: 1, expected: true},
		"another spec, the old finished": {spec: other, generation: 2, jobs: jobs{job(1, hash, batchv1.JobFailed)}, done: hash, create: "cam-8120fe-2-job", record: "other", start: true, remove: 1, desired: 1, expected: true},
		"Akri's of this spec":            {spec: jobSpec, generation: 3, jobs: jobs{job(3, "", batchv1.JobComplete)}, record: hash, desired: 1, ready: 1},
		"Akri's of an earlier spec":      {spec: jobSpec, generation: 3, jobs: jobs{job(2, "", batchv1.JobComplete)}, create: "cam-8120fe-3-job", record: hash, start: true, remove: 1, desired: 1, expected: true},
		"spec taken away":                {generation: 2, jobs: jobs{job(1, hash, ""), goingJob}, done: hash, record: "-", remove: 1},
		"device gone":                    {spec: jobSpec, generation: 1, gone: true},
		"device gone, runs":              {spec: jobSpec, generation: 1, gone: true, jobs: jobs{job(1, hash, "")}, done: hash, desired: 1, expected: true},
		"somebody changed its hash": {spec: jobSpec, generation: 1,
			jobs: jobs{job(1, "x", batchv1.JobComplete)}, record: hash, desired: 1, ready: 1},
		"invalid": {spec: `{"template":{"specs":{}}}`, generation: 2, jobs: jobs{job(1, hash, "")}, done: hash},
	} {
		t.Run(name, func(t *testing.T) {
			c := jobConfiguration(tc.generation, tc.spec)
			if tc.spec == "" {
				c.Spec.BrokerSpec = nil
			}
			f := newFacts(t, c, "a")
			f.reported = !tc.gone
			f.instance.Annotations = map[string]string{naming.JobDone: tc.done}
			p := decideJobs(f, tc.jobs)
			created, record := "", ""
			if p.create != nil {
				created = p.create.Name
			}
			if p.record != nil {
				if record = *p.record; record == "" {
					record = "-"
				}
			}
			if want := tc.record; want == "other" {
				tc.record = f.spec.hash
			}
			if created != tc.create || record != tc.record || (p.start != nil) != tc.start || len(p.remove) != tc.remove || p.desired != tc.desired || p.ready != tc.ready || p.expected != tc.expected {
				t.Errorf("create %q, record %q, start %v, remove %d, %d of %d ready, expected %v; want %+v", created, record, p.start != nil, len(p.remove), p.ready, p.desired, p.expected, tc)
			}
		})
	}
	few := jobConfiguration(1, jobSpec)
	few.Spec.Capacity = 1
	if p := decideJobs(newFacts(t, few, "a"), nil); p.create != nil || p.problem == nil || p.problem.Reason != TooManySlots {
		t.Errorf("a Job of more slots than there are: %+v", p)
	}
}

// A Job that has ended and is removed is not made again because the cache does not show yet that it was made.
func TestJobRunsOnceThoughTheCacheIsBehind(t *testing.T) {
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(jobConfiguration(1, jobSpec))
	r.found("a")
	r.settle()
	if err := r.fake.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	r.Client = interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object,
			_ ...client.GetOption) error {
			theInstance().DeepCopyInto(o.(*akriv0.Instance))
			return nil
		}})
	r.writes = nil
	if result, err := r.reconcile(); err != nil || result.RequeueAfter != cacheLag || len(r.writes) > 0 {
		t.Errorf("%+v, %v, writes %q, want none, and another look", result, err, r.writes)
	}
}

// For an Instance that goes with a former Configuration of the name nothing is made: its Job would run again for
// its successor.
func TestInstanceOfAFormerConfiguration(t *testing.T) {
	i := theInstance()
	c := jobConfiguration(1, jobSpec)
	i.OwnerReferences = []metav1.OwnerReference{naming.OwnedBy("Configuration", c)}
	i.OwnerReferences[0].UID = "former"
	r := newRig(t, i)
	r.inv.SetConfiguration(c)
	r.found("a")
	if got := r.settle(); len(got) > 0 {
		t.Errorf("writes %q", got)
	}
}

// A Job that ends at once and is removed by its time to live runs once, wherever the
// controller is killed.
func TestJobRunsOnce(t *testing.T) {
	for at := range 4 {
		for _, lost := range []bool{false, true} {
			r := newRig(t, theInstance())
			r.inv.SetConfiguration(jobConfiguration(1, jobSpec))
			r.found("a")
			ran, n := 0, 0
			kill := func(string) bool {
				n++
				if n-1 == at {
					r.restart()
				}
				return n-1 == at
			}
			if lost {
				r.lose = kill
			} else {
				r.refuse = func(w string) error {
					if kill(w) {
						return apierrors.NewInternalError(errWhy)
					}
					return nil
				}
			}
			for range 10 {
				_, _ = r.reconcile() // by the controller that was killed, or another
				var all batchv1.JobList
				if err := r.api.List(t.Context(), &all); err != nil {
					t.Fatal(err)
				}
				for i := range all.Items {
					if j := &all.Items[i]; !*j.Spec.Suspend {
						ran++
						if err := r.fake.Delete(t.Context(), j); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if want := min(at, 3); ran != 1 || n < want {
				t.Errorf("killed at write %d, its answer lost %v: the Job ran %d times, after %d writes", at, lost, ran, n)
			}
		}
	}
}
