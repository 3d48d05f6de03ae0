package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// killer kills the controller after each of its writes, as soon as the API server's audit
// log shows it, and starts it again.
type killer struct {
	*rig
	mu    sync.Mutex
	kills map[string]int // by the write that came last, "create pods"
	end   chan struct{}
	ended chan error
}

func (r *rig) killAfterEachWrite() *killer {
	r.Helper()
	r.controlPlaneRuns()
	k := &killer{rig: r, kills: map[string]int{}, end: make(chan struct{}), ended: make(chan error, 1)}
	log, err := os.Open(shared.AuditLog())
	r.check(err)
	_, err = log.Seek(0, io.SeekEnd)
	r.check(err)
	go func() { k.ended <- errors.Join(k.run(log), log.Close()) }()
	r.Cleanup(func() { _ = k.stop(); r.controlPlaneRuns() })
	return k
}

// stop returns how often the controller was killed after each kind of write.
func (k *killer) stop() map[string]int {
	select {
	case <-k.end:
	default:
		close(k.end)
		if err := <-k.ended; err != nil {
			k.Error(err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.kills)
}

// next returns the controller's next write in the test's namespace: "" when the test
// does not want more.
func (k *killer) next(lines *bufio.Reader, rest *[]byte) (string, error) {
	for {
		part, err := lines.ReadBytes('\n')
		*rest = append(*rest, part...)
		switch {
		case errors.Is(err, io.EOF): // half a line, or none
			select {
			case <-k.end:
				return "", nil
			case <-time.After(time.Millisecond):
				continue
			}
		case err != nil:
			return "", err
		}
		line := *rest
		*rest = nil
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return "", err
		}
		if o := e.ObjectRef; e.User.Username == controllerUser && o.Namespace == k.ns && o.Resource != "events" && e.ResponseStatus.Code < 300 {
			return strings.TrimSuffix(e.Verb+" "+o.Resource+"/"+o.Subresource, "/"), nil
		}
	}
}

func (k *killer) run(log *os.File) error {
	lines, rest := bufio.NewReader(log), []byte(nil)
	for {
		write, err := k.next(lines, &rest)
		if err != nil || write == "" {
			return err
		}
		switch err := shared.Kill(cluster.Controller, "", syscall.SIGKILL); {
		case errors.Is(err, os.ErrProcessDone): // this write was before the last kill, too
			continue
		case err != nil:
			return err
		}
		k.mu.Lock()
		k.kills[write]++
		k.mu.Unlock()
		// What it wrote before it was dead is not written by the next.
		if _, err := log.Seek(0, io.SeekEnd); err != nil {
			return err
		}
		lines.Reset(log)
		rest = nil
		if err := shared.Start(cluster.Controller, ""); err != nil {
			return err
		}
	}
}

// The controller is killed after each of its writes, again and again. All comes to be as
// it should, and nothing is made twice: each broker once for each spec, and Jobs too.
func TestControllerKilledBetweenWrites(t *testing.T) {
	r := newRig(t)
	before := r.created() // by an earlier run, on a cluster that is used again
	k := r.killAfterEachWrite()
	const instance = "killed-8120fe"
	pods := []string{nodeA + "-" + instance + "-pod", nodeB + "-" + instance + "-pod"}
	r.brokers("killed", 2, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.InstanceServiceSpec = &runtime.RawExtension{Raw: []byte(`{"ports":[{"port":80}]}`)}
		c.ConfigurationServiceSpec = c.InstanceServiceSpec
	}, "foo0")
	status := func(desired, ready int32, reason string) {
		t.Helper()
		r.await("the status", func() (bool, string) {
			s := r.status("killed")
			return s.Brokers != nil && *s.Brokers == akriv0.BrokerCount{Desired: desired, Ready: ready} && condition(s, akriv0.ConditionBrokersReady).Reason == reason, fmt.Sprintf("%+v", s)
		})
	}
	r.awaitBrokers(pods...)
	r.awaitServices(map[string]int{instance + "-svc": 2, "killed-svc": 2})
	status(2, 2, "AllReady")

	t.Log("another spec")
	first := r.awaitBrokers(pods...)
	r.patchConfiguration("killed", `{"spec":{"brokerProperties":{"LEVEL":"two"},"instanceServiceSpec":{"ports":[{"port":81}]},"configurationServiceSpec":{"ports":[{"port":81}]}}}`)
	r.await("both brokers to be replaced", func() (bool, string) {
		now := r.brokerPods("killed")
		return len(now) == 2 && now[0].UID != first[0].UID && now[1].UID != first[1].UID, fmt.Sprint(len(now))
	})
	r.awaitBrokers(pods...)
	r.await("both Services with the other port", func() (bool, string) {
		list, err := kube.CoreV1().Services(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		ports := ""
		for _, s := range list.Items {
			ports += fmt.Sprint(s.Spec.Ports[0].Port, " ")
		}
		return ports == "81 81 ", ports
	})
	status(2, 2, "AllReady")

	t.Log("a Job instead")
	job, err := json.Marshal(map[string]any{"spec": map[string]any{"brokerSpec": map[string]any{"brokerPodSpec": nil, "brokerJobSpec": json.RawMessage(raw(r,
		batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: *brokerPod(func(p *v1.PodSpec) { p.RestartPolicy = v1.RestartPolicyNever }, "exit", "0")}}).Raw)}}})
	r.check(err)
	r.patchConfiguration("killed", string(job))
	status(1, 1, "AllReady")
	r.awaitServices(map[string]int{})

	t.Log("deleted")
	made := r.created()
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "killed", metav1.DeleteOptions{}))
	r.nothingLeft()
	kills := k.stop()
	t.Logf("killed after: %v", kills)
	for _, write := range []string{"create instances", "create pods", "create services", "patch configurations/status", "delete pods", "update services", "create jobs", "patch instances", "patch jobs", "delete services"} {
		if kills[write] == 0 {
			t.Errorf("never killed after %q: %v", write, kills)
		}
	}
	want := map[string]int{"instances": 1, "services": 2, "pods": 4, "jobs": 1}
	for resource, n := range want {
		if got := made[resource] - before[resource]; got != n {
			t.Errorf("%d %s were created, want %d", got, resource, n)
		}
	}
	r.awaitClaims("killed", map[string]holding{})
}

// created counts what the controller has created in the test's namespace.
func (r *rig) created() map[string]int {
	r.Helper()
	made := map[string]int{}
	for _, e := range auditEvents(r) {
		if e.User.Username == controllerUser && e.Verb == "create" && e.ObjectRef.Namespace == r.ns && e.ResponseStatus.Code < 300 {
			made[e.ObjectRef.Resource]++
		}
	}
	return made
}

// A Configuration's status is written at most once in 5 seconds, whatever goes on.
func TestStatusIsWrittenSeldom(t *testing.T) {
	r := newRig(t)
	r.brokers("busy", 4, r.podBroker(brokerPod(func(p *v1.PodSpec) { p.Containers[0].Args = []string{"run"} })), nil, "busy0", "busy1", "busy2")
	r.awaitBrokerCount("busy", 6)
	// Pods of people take and give back slots, and brokers are deleted, for a while.
	for round, end := 0, time.Now().Add(20*time.Second); time.Now().Before(end); round++ {
		user := fmt.Sprint("user-", round)
		r.create(newPod(user, "", map[string]int64{"busy": 1}))
		r.awaitRunning(user)
		pods := r.brokerPods("busy")
		r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, pods[round%len(pods)].Name, metav1.DeleteOptions{}))
		r.awaitBrokerCount("busy", 6)
		r.delete(user)
	}
	var at []time.Time
	for _, e := range timedEvents(r) {
		if e.User.Username == controllerUser && e.ObjectRef.Namespace == r.ns && e.ObjectRef.Resource == "configurations" && e.ObjectRef.Subresource == "status" {
			at = append(at, e.RequestReceivedTimestamp)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := 1; i < len(at); i++ {
		if between := at[i].Sub(at[i-1]); between < 4900*time.Millisecond {
			t.Errorf("write %d of the status comes %s after the one before", i+1, between)
		}
	}
	if len(at) < 3 {
		t.Errorf("only %d writes of the status: nothing went on", len(at))
	}
}

// timedEvent is an audit event with its time.
type timedEvent struct {
	auditEvent
	RequestReceivedTimestamp time.Time
}

func timedEvents(r *rig) []timedEvent {
	r.Helper()
	data, err := os.ReadFile(shared.AuditLog())
	r.check(err)
	var all []timedEvent
	for line := range strings.Lines(string(data)) {
		var e timedEvent
		if strings.HasSuffix(line, "\n") { // what follows the last one may be half written
			r.check(json.Unmarshal([]byte(line), &e))
			all = append(all, e)
		}
	}
	return all
}
