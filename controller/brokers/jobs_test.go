package brokers

import (
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	goingJob := job(1, hash, "")
	goingJob.DeletionTimestamp = &metav1.Time{Time: start}
	type jobs = []*batchv1.Job
	for name, tc := range map[string]struct {
		spec           string
		generation     int64
		jobs           jobs
		done           string // on the Instance
		create, record string // "-" clears
		remove         int
		desired, ready int
		expected       bool
		gone           bool // no node reports the device
	}{
		"first":                          {spec: jobSpec, generation: 1, create: "cam-8120fe-1-job", record: hash, desired: 1, expected: true},
		"made, not noted":                {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, "")}, record: hash, desired: 1, expected: true},
		"runs":                           {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, "")}, done: hash, desired: 1, expected: true},
		"complete":                       {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, batchv1.JobComplete)}, done: hash, desired: 1, ready: 1},
		"failed":                         {spec: jobSpec, generation: 1, jobs: jobs{job(1, hash, batchv1.JobFailed)}, done: hash, desired: 1},
		"removed by its TTL":             {spec: jobSpec, generation: 1, done: hash, desired: 1, ready: 1},
		"capacity changed":               {spec: jobSpec, generation: 2, jobs: jobs{job(1, hash, "")}, done: hash, desired: 1, expected: true},
		"another spec":                   {spec: other, generation: 2, jobs: jobs{job(1, hash, "")}, done: hash, create: "cam-8120fe-2-job", record: "other", desired: 1, expected: true},
		"another spec, the old finished": {spec: other, generation: 2, jobs: jobs{job(1, hash, batchv1.JobFailed)}, done: hash, create: "cam-8120fe-2-job", record: "other", remove: 1, desired: 1, expected: true},
		"Akri's of this spec":            {spec: jobSpec, generation: 3, jobs: jobs{job(3, "", batchv1.JobComplete)}, record: hash, desired: 1, ready: 1},
		"Akri's of an earlier spec":      {spec: jobSpec, generation: 3, jobs: jobs{job(2, "", batchv1.JobComplete)}, create: "cam-8120fe-3-job", record: hash, remove: 1, desired: 1, expected: true},
		"spec taken away":                {generation: 2, jobs: jobs{job(1, hash, ""), goingJob}, done: hash, record: "-", remove: 1},
		"device gone":                    {spec: jobSpec, generation: 1, gone: true},
		"device gone, runs":              {spec: jobSpec, generation: 1, gone: true, jobs: jobs{job(1, hash, "")}, done: hash, desired: 1, expected: true},
		"invalid":                        {spec: `{"template":{"specs":{}}}`, generation: 2, jobs: jobs{job(1, hash, "")}, done: hash},
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
			if created != tc.create || record != tc.record || len(p.remove) != tc.remove || p.desired != tc.desired || p.ready != tc.ready || p.expected != tc.expected {
				t.Errorf("create %q, record %q, remove %d, %d of %d ready, expected %v; want %+v", created, record, len(p.remove), p.ready, p.desired, p.expected, tc)
			}
		})
	}
	few := jobConfiguration(1, jobSpec)
	few.Spec.Capacity = 1
	if p := decideJobs(newFacts(t, few, "a"), nil); p.create != nil || p.problem == nil || p.problem.Reason != TooManySlots {
		t.Errorf("a Job of more slots than there are: %+v", p)
	}
}
