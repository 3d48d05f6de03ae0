package brokers

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// jobPlan is what to do about an Instance's Jobs, in this order.
type jobPlan struct {
	create *batchv1.Job
	// record is the new value of the Instance's annotation naming.JobDone; nil to leave
	// it. It comes after the Job, so that a Job is not noted that was never made.
	record *string
	// start is a Job that is held, and may run when it is noted: so one that ends at
	// once, and whose time to live is over, does not run again.
	start  *batchv1.Job
	remove []*batchv1.Job

	desired, ready int
	expected       bool // the Job runs or is to be made
	withheld       int  // pods, for lack of room
	problem        *Problem
}

// decideJobs says what to do about Jobs. A Job is made once for a spec: the Instance
// remembers it, so that a Job that its time to live has removed does not run again.
// Jobs of earlier specs finish and go.
func decideJobs(f *facts, jobs []*batchv1.Job) jobPlan {
	var p jobPlan
	done := f.instance.Annotations[naming.JobDone]
	if f.spec == nil || f.spec.err == nil && f.spec.job == nil {
		for _, job := range jobs {
			if job.DeletionTimestamp == nil {
				p.remove = append(p.remove, job)
			}
		}
		if done != "" {
			p.record = new(string)
		}
		return p
	}
	if f.spec.err != nil { // said of the pods; what runs is left as it is
		return p
	}
	var current *batchv1.Job
	for _, job := range jobs {
		switch {
		// The name has the generation: one of this has this spec, whatever its annotation. Akri's have none.
		case job.Annotations[naming.SpecHash] == f.spec.hash,
			job.Name == naming.Job(f.instance.Name, f.configuration.Generation):
			current = job
		case (isFinished(job) || isHeld(job)) && job.DeletionTimestamp == nil:
			p.remove = append(p.remove, job)
		}
	}
	p.desired = 1
	switch {
	case current != nil:
		p.expected = !isFinished(current)
		if isComplete(current) {
			p.ready = 1
		}
		if done != f.spec.hash {
			p.record = &f.spec.hash
		}
		if isHeld(current) && current.DeletionTimestamp == nil {
			p.start = current
		}
	case done == f.spec.hash:
		p.ready = 1
	case !f.reported: // the device has gone, and the Instance will
		p.desired = 0
	default:
		p.make(f, jobs)
	}
	return p
}

func (p *jobPlan) make(f *facts, jobs []*batchv1.Job) {
	if f.spec.slots > int64(f.configuration.Spec.Slots()) {
		p.problem = tooManySlots(f)
		return
	}
	if pods := jobPods(f.spec.job); !f.room.TakeAmong(cut(f.reach), runningPods(jobs)+pods) {
		f.room.Withhold(pods)
		p.withheld = pods
		return
	}
	job, err := renderJob(f)
	if err != nil {
		p.problem = &Problem{UnknownTemplate, err.Error()}
		return
	}
	p.create, p.record, p.expected = job, &f.spec.hash, true
	if isHeld(job) {
		p.start = job // as it is when it has been created
	}
}

// jobPods is how many pods of a Job may run at once.
func jobPods(spec *batchv1.JobSpec) int {
	if spec.Parallelism == nil {
		return 1
	}
	return int(max(*spec.Parallelism, 0))
}

func runningPods(jobs []*batchv1.Job) int {
	n := 0
	for _, job := range jobs {
		if !isFinished(job) {
			n += jobPods(&job.Spec)
		}
	}
	return n
}

// hold has a Job wait until it is noted. One that is suspended by its spec is left to
// whoever resumes it.
func hold(job *batchv1.Job) {
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return
	}
	job.Spec.Suspend = new(true)
	job.Annotations[naming.JobHeld] = "until its Instance notes it"
}

func isHeld(job *batchv1.Job) bool { return job.Annotations[naming.JobHeld] != "" }

// released returns the Job as it is when it runs.
func released(job *batchv1.Job) *batchv1.Job {
	runs := job.DeepCopy()
	runs.Spec.Suspend = new(false)
	delete(runs.Annotations, naming.JobHeld)
	return runs
}

func isFinished(job *batchv1.Job) bool {
	return isComplete(job) || hasCondition(job, batchv1.JobFailed)
}

func isComplete(job *batchv1.Job) bool { return hasCondition(job, batchv1.JobComplete) }

func hasCondition(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
