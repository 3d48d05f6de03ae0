package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
)

// patience is how long anything may take on a slow machine before a test says
// that it does not happen at all. No test measures speed with it.
const patience = 4 * time.Minute

// rig is a test's namespace.
type rig struct {
	*testing.T
	ctx context.Context
	ns  string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	steady, err := steadyWindow()
	if err != nil {
		t.Fatal(err)
	}
	chaos, _, err := chaosWindow()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute+steady+chaos)
	t.Cleanup(cancel)
	r := &rig{T: t, ctx: ctx, ns: "e2e-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(t.Name(), "Test")))}
	_, err = kube.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.ns}}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(r.cleanUp)
	r.await("the namespace's default service account", func() (bool, string) {
		_, err := kube.CoreV1().ServiceAccounts(r.ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return r
}

// cleanUp deletes the namespace's pods and Configurations and waits until nothing of
// theirs is left, so that the next test starts from nothing.
func (r *rig) cleanUp() {
	ctx := context.Background()
	if r.Failed() {
		r.dump(ctx)
	}
	list, err := akri.AkriV0().Configurations(r.ns).List(ctx, metav1.ListOptions{})
	r.check(err)
	for _, c := range list.Items {
		if c.Spec.BrokerSpec != nil { // whose pods would be made again
			if err := akri.AkriV0().Configurations(r.ns).Delete(ctx, c.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				r.check(err)
			}
		}
	}
	r.deletePods()
	r.check(akri.AkriV0().Configurations(r.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	r.await("the namespace's devices, claims and Instances to be gone", func() (bool, string) {
		reported, err := akri.KubeslotV1alpha1().DeviceSlices().List(ctx, metav1.ListOptions{})
		r.check(err)
		for _, s := range reported.Items {
			for _, d := range s.Spec.Devices {
				if d.Configuration.Namespace == r.ns {
					return false, fmt.Sprintf("%s has device %s", s.Name, d.Instance())
				}
			}
		}
		claims, err := akri.KubeslotV1alpha1().SlotClaims().List(ctx, metav1.ListOptions{})
		r.check(err)
		for _, c := range claims.Items {
			if c.Spec.Pod != nil && c.Spec.Pod.Namespace == r.ns {
				return false, fmt.Sprintf("pod %s has slot %s", c.Spec.Pod.Name, c.Name)
			}
		}
		in, err := akri.AkriV0().Instances(r.ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(in.Items) == 0, fmt.Sprint(err, in)
	})
	r.check(kube.CoreV1().Namespaces().Delete(ctx, r.ns, metav1.DeleteOptions{}))
}

// deletePods deletes the namespace's pods and waits until they are gone.
func (r *rig) deletePods() {
	r.Helper()
	ctx := context.Background()
	r.check(kube.CoreV1().Pods(r.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	r.await("the namespace's pods to be gone", func() (bool, string) {
		pods, err := kube.CoreV1().Pods(r.ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, fmt.Sprint(err, len(podsOf(pods)))
	})
}

func podsOf(l *v1.PodList) []v1.Pod {
	if l == nil {
		return nil
	}
	return l.Items
}

// dump logs what a reader of a failure wants to see.
func (r *rig) dump(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods,configurations,instances", "-n", r.ns, "-o", "wide"},
		{"get", "events", "-n", r.ns, "--sort-by=.metadata.creationTimestamp"},
		{"get", "deviceslices,slotclaims", "-o", "yaml"},
	} {
		out, err := shared.Kubectl(ctx, args...)
		r.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// await waits until ok, or fails with what was awaited and what was last seen.
func (r *rig) await(what string, ok func() (bool, string)) {
	r.Helper()
	await.Within(r.T, patience, what, ok)
}

// newPod describes a pod with one container "main" that runs the test image.
func newPod(name, node string, slots map[string]int64) *v1.Pod {
	grace, no := int64(1), false
	amounts := v1.ResourceList{}
	for resourceName, n := range slots {
		amounts[v1.ResourceName("akri.sh/"+resourceName)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &no,
			Containers: []v1.Container{{Name: "main", Image: "kubeslot.test/app:1", ImagePullPolicy: v1.PullNever,
				Resources: v1.ResourceRequirements{Requests: amounts, Limits: amounts}}},
		},
	}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
	}
	return p
}

func (r *rig) create(p *v1.Pod) *v1.Pod {
	r.Helper()
	p, err := kube.CoreV1().Pods(r.ns).Create(r.ctx, p, metav1.CreateOptions{})
	r.check(err)
	return p
}

func (r *rig) pod(name string) *v1.Pod {
	r.Helper()
	p, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, name, metav1.GetOptions{})
	r.check(err)
	return p
}

func (r *rig) awaitRunning(name string) *v1.Pod {
	r.Helper()
	var p *v1.Pod
	r.await("pod "+name+" to run", func() (bool, string) {
		p = r.pod(name)
		ready := len(p.Status.ContainerStatuses) > 0
		for _, s := range p.Status.ContainerStatuses {
			ready = ready && s.State.Running != nil
		}
		return p.Status.Phase == v1.PodRunning && ready, fmt.Sprint(p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses)
	})
	return p
}

// awaitPending waits until the scheduler has refused the pod with a message that
// has all the parts.
func (r *rig) awaitPending(name string, parts ...string) {
	r.Helper()
	r.await(fmt.Sprintf("pod %s to be refused with %q", name, parts), func() (bool, string) {
		for _, c := range r.pod(name).Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
				return containsAll(c.Message, parts), c.Message
			}
		}
		return false, "no PodScheduled condition"
	})
	r.awaitEvent(name, append(parts, "FailedScheduling")...)
}

// awaitEvent waits for an event of the pod whose reason and message have all the parts.
func (r *rig) awaitEvent(pod string, parts ...string) {
	r.Helper()
	r.await(fmt.Sprintf("an event of pod %s with %q", pod, parts), func() (bool, string) {
		events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return false, err.Error()
		}
		seen := ""
		for _, e := range events.Items {
			text := e.Reason + ": " + e.Message
			if containsAll(text, parts) {
				return true, ""
			}
			seen += text + "\n"
		}
		return false, seen
	})
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

func (r *rig) delete(name string) {
	r.Helper()
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, name, metav1.DeleteOptions{}))
	r.await("pod "+name+" to be gone", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, name, metav1.GetOptions{})
		return err != nil, "it is still there"
	})
}

// mayOnly is a client of a user who has the one right, in the test's namespace.
func (r *rig) mayOnly(user string, rule rbacv1.PolicyRule) kubernetes.Interface {
	r.Helper()
	meta := metav1.ObjectMeta{Name: user}
	_, err := kube.RbacV1().Roles(r.ns).Create(r.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	r.check(err)
	_, err = kube.RbacV1().RoleBindings(r.ns).Create(r.ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}}, metav1.CreateOptions{})
	r.check(err)
	// The API server's authorizer learns of it a little later.
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			r.await(user+" to have the right", func() (bool, string) {
				review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(r.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.ns, Verb: rule.Verbs[0], Group: group, Resource: resource, Subresource: subresource}}},
					metav1.CreateOptions{})
				r.check(err)
				return review.Status.Allowed, review.Status.Reason
			})
		}
	}
	config, err := shared.RESTConfig()
	r.check(err)
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	r.check(err)
	return client
}

// exec runs a command of the test image in the pod.
func (r *rig) exec(pod string, args ...string) string {
	r.Helper()
	out, err := r.tryExec(pod, args...)
	r.check(err)
	return out
}

// tryExec asks the API server, as kubectl exec does; each start of kubectl takes half a second of a core.
func (r *rig) tryExec(pod string, args ...string) (string, error) {
	config, err := shared.RESTConfig()
	if err != nil {
		return "", err
	}
	options := &v1.PodExecOptions{Container: "main", Command: append([]string{"/app"}, args...), Stdout: true, Stderr: true}
	to := kube.CoreV1().RESTClient().Get().Resource("pods").Namespace(r.ns).Name(pod).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", to.String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(r.ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return stdout.String(), fmt.Errorf("run %q in pod %s: %w: %s", args, pod, err, stderr.String())
	}
	return stdout.String(), nil
}

// awaitExec waits until the kubelet can run commands in the pod: it tries a socket of
// kubecri's that was away only now and then.
func (r *rig) awaitExec(pod string) {
	r.Helper()
	r.await("the kubelet to reach pod "+pod+" again", func() (bool, string) {
		_, err := r.tryExec(pod, "env")
		return err == nil, fmt.Sprint(err)
	})
}

// env is the environment inside the pod's container.
func (r *rig) env(pod string) map[string]string {
	r.Helper()
	env := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(r.exec(pod, "env")), "\n") {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return env
}

// containers asks the node's runtime, as its kubelet does, for a pod's containers.
func (r *rig) containers(node string, pod *v1.Pod) []*runtimeapi.Container {
	r.Helper()
	list, err := r.cri(shared.CRISocket(node)).ListContainers(r.ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": pod.Name, "io.kubernetes.pod.namespace": r.ns}}})
	r.check(err)
	return list.Containers
}

// cri is a client of a CRI socket.
func (r *rig) cri(socket string) runtimeapi.RuntimeServiceClient {
	r.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	r.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// specAnnotations are those of the container's OCI spec.
func (r *rig) specAnnotations(node, id string) map[string]string {
	r.Helper()
	status, err := r.cri(shared.CRISocket(node)).ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	r.check(err)
	var info struct {
		RuntimeSpec struct{ Annotations map[string]string }
	}
	r.check(json.Unmarshal([]byte(status.Info["info"]), &info))
	return info.RuntimeSpec.Annotations
}

// slotAnnotations are the akri.agent.slot-* ones of a container's annotations.
func slotAnnotations(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for k, v := range annotations {
		if strings.HasPrefix(k, "akri.agent.slot-") {
			found[k] = v
		}
	}
	return found
}
