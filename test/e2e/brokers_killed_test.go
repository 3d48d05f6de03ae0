package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// killer stands between the controller and the API server. It lets a write of the test's
// objects through, kills the controller, and starts it again; what the controller wants
// to write before it is dead never arrives.
type killer struct {
	*rig
	mu     sync.Mutex
	passed bool           // a write, since the controller was started
	over   bool           // no more is killed
	kills  map[string]int // by the write that came last, "create pods"
	write  chan string    // one that has passed
	ended  chan error
}

func (r *rig) killAfterEachWrite() *killer {
	r.Helper()
	r.controlPlaneRuns()
	k := &killer{rig: r, kills: map[string]int{}, write: make(chan string), ended: make(chan error, 1)}
	listener, err := shared.Listen(r.ctx, "", "tcp", "127.0.0.1:0")
	r.check(err)
	server := &http.Server{Handler: k.proxy()}
	go func() { _ = server.Serve(listener) }()

	// The controller speaks to the killer, which needs no credentials.
	path := shared.ComponentKubeconfig(cluster.Controller, "")
	original, err := os.ReadFile(path)
	r.check(err)
	r.Cleanup(func() {
		_ = k.stop()
		r.check(os.WriteFile(path, original, 0o600))
		r.check(shared.Restart(cluster.Controller, ""))
		r.check(server.Close())
		r.controlPlaneRuns()
	})
	r.check(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"killer": {Server: "http://" + listener.Addr().String()}},
		Contexts:       map[string]*clientcmdapi.Context{"killer": {Cluster: "killer"}},
		CurrentContext: "killer",
	}, path))
	r.check(shared.Restart(cluster.Controller, ""))
	go func() { k.ended <- k.run() }()
	return k
}

// proxy forwards to the API server as the controller.
func (k *killer) proxy() http.Handler {
	config, err := clientcmd.BuildConfigFromFlags("", shared.ComponentKubeconfig(cluster.Controller, ""))
	k.check(err)
	admin, err := shared.RESTConfig()
	k.check(err)
	config.Host = admin.Host // as it is reached from here
	transport, err := rest.TransportFor(config)
	k.check(err)
	target, err := url.Parse(config.Host)
	k.check(err)
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // for watches
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, is := k.nameOf(req)
		if !is {
			forward.ServeHTTP(w, req)
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.passed {
			panic(http.ErrAbortHandler) // from one that is being killed
		}
		answer := &statusRecorder{ResponseWriter: w}
		forward.ServeHTTP(answer, req)
		if answer.code >= 200 && answer.code < 300 && !k.over {
			k.passed = true
			k.kills[name]++
			k.write <- name
		}
	})
}

// statusRecorder remembers a response's status code.
type statusRecorder struct {
	http.ResponseWriter
	code int
}

func (s *statusRecorder) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// nameOf returns "create pods" for a write in the test's namespace that is not an Event,
// "delete slotclaims" for one of its Configuration's claims, and "create resourceslices" for
// what DRA reads: these have no namespace.
func (k *killer) nameOf(req *http.Request) (string, bool) {
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[req.Method]
	if strings.Contains(req.URL.Path, "/slotclaims/killed-") {
		return verb + " slotclaims", verb != ""
	}
	if _, path, found := strings.Cut(req.URL.Path, "/apis/resource.k8s.io/v1/"); found {
		resource, _, _ := strings.Cut(path, "/")
		return verb + " " + resource, verb != ""
	}
	_, path, found := strings.Cut(req.URL.Path, "/namespaces/"+k.ns+"/")
	parts := strings.Split(path, "/") // resource, name, subresource
	if verb == "" || !found || parts[0] == "events" {
		return "", false
	}
	if len(parts) == 3 {
		return verb + " " + parts[0] + "/" + parts[2], true
	}
	return verb + " " + parts[0], true
}

func (k *killer) run() error {
	for range k.write {
		if err := shared.Restart(cluster.Controller, ""); err != nil {
			return err
		}
		k.mu.Lock()
		k.passed = false
		k.mu.Unlock()
	}
	return nil
}

// stop ends the killing, and returns how often the controller was killed after each kind of write.
func (k *killer) stop() map[string]int {
	k.mu.Lock()
	again := k.over
	k.over = true
	k.mu.Unlock()
	if !again {
		close(k.write)
		if err := <-k.ended; err != nil {
			k.Error(err)
		}
	}
	return k.kills
}

// The controller is killed after each of its writes, again and again. All comes to be as
// it should, and nothing is made twice: each broker once for each spec, and Jobs too.
func TestControllerKilledBetweenWrites(t *testing.T) {
	testAll(t, "kills the controller dozens of times")
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
			return countsBrokers(s, desired, ready) && condition(s, akriv0.ConditionBrokersReady).Reason == reason,
				fmt.Sprintf("%+v", s)
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

	t.Log("finalizers of Akri's agents")
	for _, node := range []string{nodeA, nodeB} {
		_, err := akri.AkriV0().Configurations(r.ns).Patch(r.ctx, "killed", types.ApplyPatchType,
			[]byte(`{"apiVersion":"akri.sh/v0","kind":"Configuration","metadata":{"name":"killed","finalizers":["`+node+`"]}}`), metav1.PatchOptions{FieldManager: node + "-fin"})
		r.check(err)
	}
	r.await("the finalizers to go", func() (bool, string) {
		c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, "killed", metav1.GetOptions{})
		r.check(err)
		return len(c.Finalizers) == 0, fmt.Sprint(c.Finalizers)
	})

	t.Log("a claim whose pod is gone, of a node that is out of service")
	other := r.newStranger("killed")
	r.check(r.claim(instance+"-1", other.owner, v1alpha1.SlotClaimSpec{NodeName: strangerName, Level: theirs.level, Holder: theirs.holder,
		Pod: &v1alpha1.PodReference{Namespace: r.ns, Name: "gone", UID: "gone"}}))
	_, err = kube.CoreV1().Nodes().Patch(r.ctx, strangerName, types.StrategicMergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"off","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	r.check(err)
	r.awaitClaims("killed", map[string]holding{})

	t.Log("the device goes")
	r.check(akri.KubeslotV1alpha1().DeviceSlices().Delete(r.ctx, strangerName+"-0", metav1.DeleteOptions{}))
	r.patchConfiguration("killed", nobodyDiscovers)
	r.await("its Instance to go", func() (bool, string) {
		left := r.instances("killed")
		return len(left) == 0, fmt.Sprint(left)
	})

	t.Log("deleted")
	made := r.created()
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "killed", metav1.DeleteOptions{}))
	r.nothingLeft()
	kills := k.stop()
	t.Logf("killed after: %v", kills)
	for _, write := range []string{"create instances", "create pods", "create services", "patch configurations/status", "delete pods", "update services", "create jobs", "patch instances", "patch jobs", "delete services",
		"delete instances", "delete slotclaims", "patch configurations"} {
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

// nobodyDiscovers has a Configuration's devices go, as if they were unplugged.
const nobodyDiscovers = `{"spec":{"discovery":{"nodeSelector":{"nobody":"has-this-label"}}}}`

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
	testAll(t, "goes on for twenty seconds")
	t.Parallel()
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
	for _, e := range auditEvents(r) {
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
