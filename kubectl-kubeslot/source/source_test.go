package source

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	akrifake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
)

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
}

// refuse makes the client refuse what the function says.
func refuse(f *clienttesting.Fake, verb string, when func(a clienttesting.Action) error) {
	f.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := when(a)
		return err != nil, nil, err
	})
}

func TestListByRights(t *testing.T) {
	everywhere := func(a clienttesting.Action) error {
		if a.GetNamespace() == "" {
			return forbidden(a.GetResource().Resource)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		kube, akri func(a clienttesting.Action) error
		pods       int
		podsOf     string
		missing    []string
		err        string
	}{
		"all":                             {pods: 2},
		"pods of one namespace, no nodes": {kube: everywhere, pods: 1, podsOf: "default", missing: []string{"pods of other namespaces", "nodes"}},
		"no pods at all": {kube: func(a clienttesting.Action) error {
			if a.GetResource().Resource == "pods" {
				return forbidden("pods")
			}
			return nil
		}, podsOf: "default", missing: []string{"pods"}},
		"no Configurations": {akri: func(a clienttesting.Action) error { return forbidden(a.GetResource().Resource) }, err: "list configurations.akri.sh: "},
		"no CRDs": {akri: func(a clienttesting.Action) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: a.GetResource().Resource}, "")
		}, err: "is Kubeslot installed there?"},
		"no server": {kube: func(clienttesting.Action) error { return errors.New("connection refused") }, err: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			kube, akri := kubefake.NewClientset(pod("default", "a"), pod("other", "b")), akrifake.NewSimpleClientset()
			if tc.kube != nil {
				refuse(&kube.Fake, "list", tc.kube)
			}
			if tc.akri != nil {
				refuse(&akri.Fake, "list", tc.akri)
			}
			objects, missing, err := For(kube, akri, nil, nil, "default").List(t.Context(), Wanted{AllPods: true})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("List() = %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(objects.Pods) != tc.pods || objects.PodsOf != tc.podsOf || cmp.Diff(tc.missing, missing) != "" {
				t.Errorf("List() has %d pods of %q, without %q; want %d of %q, without %q", len(objects.Pods), objects.PodsOf, missing, tc.pods, tc.podsOf, tc.missing)
			}
		})
	}
}

// Who may list ResourceClaims in one namespace alone is not shown that all others are gone.
func TestResourceClaimsByRights(t *testing.T) {
	for _, want := range []string{"", "default"} {
		kube, akri := kubefake.NewClientset(), akrifake.NewSimpleClientset(&akriv0.Configuration{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"},
			Spec:       akriv0.ConfigurationSpec{Allocator: akriv0.AllocatorDRA}})
		refuse(&kube.Fake, "list", func(a clienttesting.Action) error {
			if a.GetResource().Resource == "resourceclaims" && a.GetNamespace() != want {
				return forbidden("resourceclaims")
			}
			return nil
		})
		objects, _, err := For(kube, akri, nil, nil, "default").List(t.Context(), Wanted{AllPods: true})
		if err != nil || objects.ResourceClaims == nil || objects.ResourceClaimsOf != want {
			t.Errorf("ResourceClaims %v of namespace %q (%v), want those of %q", objects.ResourceClaims,
				objects.ResourceClaimsOf, err, want)
		}
	}
}

// What is listed comes page by page, without what no view reads, and anew when the API server has forgotten
// where it was.
func TestPages(t *testing.T) {
	var asked []metav1.ListOptions
	list := func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		asked = append(asked, o)
		switch {
		case o.Limit == 0:
			return &akriv0.InstanceList{Items: []akriv0.Instance{{}, {}, {ObjectMeta: metav1.ObjectMeta{
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubecri"}}}}}}, nil
		case o.Continue == "":
			return &akriv0.InstanceList{ListMeta: metav1.ListMeta{Continue: "next"}, Items: make([]akriv0.Instance, 2)}, nil
		}
		return nil, apierrors.NewResourceExpired("too old")
	}
	items, err := pages(t.Context(), metav1.ListOptions{Limit: 2}, list)
	if err != nil || len(items) != 3 || len(asked) != 3 || asked[1].Continue != "next" || asked[2].Limit != 0 {
		t.Fatalf("pages() = %d items, %v, asked for %+v", len(items), err, asked)
	}
	if last := items[2].(*akriv0.Instance); last.ManagedFields != nil {
		t.Errorf("an Instance has the managed fields %v", last.ManagedFields)
	}
}

func TestLive(t *testing.T) {
	kube, akri := kubefake.NewClientset(pod("default", "a")), akrifake.NewSimpleClientset()
	var down atomic.Bool
	broken := make(chan *watch.RaceFreeFakeWatcher, 10)
	kube.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		if down.Load() {
			return true, nil, apierrors.NewUnauthorized("the token has expired")
		}
		w := watch.NewRaceFreeFake()
		broken <- w
		return true, w, nil
	})
	live, err := For(kube, akri, nil, nil, "default").Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := live.Objects()
	if len(before.Pods) != 1 || live.Err() != nil || len(live.Missing()) != 0 {
		t.Fatalf("it begins with %d pods, %v, without %q", len(before.Pods), live.Err(), live.Missing())
	}
	if again := live.Objects(); &again.Pods[0] != &before.Pods[0] {
		t.Error("what has not changed is copied again")
	}
	noisy := pod("default", "b")
	noisy.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": "{}", assignment.Annotation: "{",
		view.RequiredPlugins + "container.main": "[kubecri]"}
	noisy.Spec = corev1.PodSpec{NodeName: "x", Volumes: []corev1.Volume{{Name: "v"}}, Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "SECRET", Value: "s"}}}}}
	if _, err := kube.CoreV1().Pods("default").Create(t.Context(), noisy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the second pod", func() bool { return len(live.Objects().Pods) == 2 })
	await.That(t, "Changed to tell of it", func() bool {
		select {
		case <-live.Changed():
			return true
		default:
			return false
		}
	})
	if len(before.Pods) != 1 {
		t.Error("objects that were given out have changed")
	}
	for _, p := range live.Objects().Pods {
		if p.Name == "b" && (p.Spec.Containers[0].Env != nil || p.Spec.Volumes != nil || len(p.Annotations) != 2) {
			t.Errorf("the pod is kept with what nobody reads: %+v", p)
		}
	}

	down.Store(true)
	(<-broken).Stop()
	await.That(t, "the error of the watch", func() bool { return apierrors.IsUnauthorized(live.Err()) })
	down.Store(false)
	await.That(t, "the error to end", func() bool { return live.Err() == nil })
}

// Users have the same Reach when they may list the same objects, and only then; one whose
// permissions shrink has another.
func TestReach(t *testing.T) {
	// reach is that of a user with the namespace, who may not list what refused says.
	reach := func(namespace string, refused func(resource, in string) bool) (Reach, error) {
		t.Helper()
		kube, akri := kubefake.NewClientset(), akrifake.NewSimpleClientset()
		for _, f := range []*clienttesting.Fake{&kube.Fake, &akri.Fake} {
			refuse(f, "list", func(a clienttesting.Action) error {
				if resource := a.GetResource().Resource; refused(resource, a.GetNamespace()) {
					return forbidden(resource)
				}
				return nil
			})
		}
		return For(kube, akri, nil, nil, namespace).Reach(t.Context())
	}
	seen := map[Reach]string{}
	for _, user := range []struct {
		namespace string
		like      string // who may list the same
		refused   func(resource, in string) bool
	}{
		{"a", "all", func(string, string) bool { return false }},
		{"b", "all", func(string, string) bool { return false }},
		{"a", "all but nodes", func(resource, _ string) bool { return resource == "nodes" }},
		{"a", "all but pods", func(resource, _ string) bool { return resource == "pods" }},
		{"a", "namespace a", func(_, in string) bool { return in != "a" }},
		{"b", "namespace b", func(_, in string) bool { return in != "b" }},
		{"a", "pods of a", func(resource, in string) bool { return resource == "pods" && in != "a" }},
	} {
		r, err := reach(user.namespace, user.refused)
		if err != nil {
			t.Fatal(err)
		}
		if like, known := seen[r]; known && like != user.like {
			t.Errorf("who may list %s shares with who may list %s", user.like, like)
		}
		seen[r] = user.like
	}
	if len(seen) != 6 {
		t.Errorf("there are %d, want 6: users with the same permissions do not share", len(seen))
	}
	if _, err := reach("a", func(string, string) bool { return true }); !apierrors.IsForbidden(err) {
		t.Errorf("who may list nothing has %v, want that it is forbidden", err)
	}
}

// What is beyond a Reach is not asked for, whatever the token allows.
func TestFollowStaysInReach(t *testing.T) {
	kube, akri := kubefake.NewClientset(), akrifake.NewSimpleClientset()
	var narrow Reach
	for i, k := range For(kube, akri, nil, nil, "a").kinds() {
		if narrow.scopes[i] = nowhere; k.namespaced {
			narrow.scopes[i] = oneNamespace
		}
	}
	narrow.namespace = "a"
	live, err := For(kube, akri, nil, nil, "b").Follow(t.Context(), narrow)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(kube.Actions(), akri.Actions()...) {
		if a.GetNamespace() != "a" {
			t.Errorf("it asks to %s %s of namespace %q", a.GetVerb(), a.GetResource().Resource, a.GetNamespace())
		}
	}
	if o := live.Objects(); o.PodsOf != "a" || o.ConfigurationsOf != "a" || len(live.Missing()) != kindCount-2 {
		t.Errorf("pods of %q, Configurations of %q, missing %v", o.PodsOf, o.ConfigurationsOf, live.Missing())
	}
}

// A Live ends with its context, also while it has not read everything.
func TestWatchEndsWithItsContext(t *testing.T) {
	kube, akri := kubefake.NewClientset(), akrifake.NewSimpleClientset()
	ctx, cancel := context.WithCancel(t.Context())
	refuse(&kube.Fake, "list", func(a clienttesting.Action) error {
		if a.GetResource().Resource == "nodes" {
			cancel()
			return nil
		}
		return nil
	})
	if _, err := For(kube, akri, nil, nil, "default").Watch(ctx); err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Watch() = %v, want that its context is done", err)
	}
}

func errNotFound(resource string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "")
}
