package properties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

var meta = metav1.ObjectMeta{Namespace: "default", Name: "x"}

func secretRef(name, key string, optional bool) v0.DiscoveryProperty {
	return v0.DiscoveryProperty{Name: "p", ValueFrom: &v0.DiscoveryPropertySource{
		SecretKeyRef: &v0.DiscoveryPropertyKeySelector{Name: name, Key: key, Optional: &optional}}}
}

func configMapRef(name, key string, optional bool) v0.DiscoveryProperty {
	return v0.DiscoveryProperty{Name: "p", ValueFrom: &v0.DiscoveryPropertySource{
		ConfigMapKeyRef: &v0.DiscoveryPropertyKeySelector{Name: name, Namespace: "default", Key: key, Optional: &optional}}}
}

// follower gathers what Follow says.
type follower struct {
	mu   sync.Mutex
	said []string
	stop func()
}

func follow(t *testing.T, r *Reader, namespace string, properties ...v0.DiscoveryProperty) *follower {
	ctx, cancel := context.WithCancel(t.Context())
	f, done := &follower{}, make(chan struct{})
	go func() {
		defer close(done)
		r.Follow(ctx, namespace, properties, func(values map[string][]byte, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			text := fmt.Sprintf("%q", values)
			if err != nil {
				text = err.Error()
			}
			f.said = append(f.said, text)
		})
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(f.stop)
	return f
}

// want lets the time pass and compares what was said since the last question: of an error
// a part.
func (f *follower) want(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.EqualFunc(f.said, want, strings.Contains) {
		t.Errorf("said %q, want %q", f.said, want)
	}
	f.said = nil
}

func TestValues(t *testing.T) {
	value := "v"
	for name, tc := range map[string]struct {
		property  v0.DiscoveryProperty
		namespace string   // the Configuration's, "default" when empty
		allowed   []string // other namespaces
		want      string
	}{
		"value":               {property: v0.DiscoveryProperty{Name: "p", Value: &value}, want: `map["p":"v"]`},
		"Secret":              {property: secretRef("x", "key", false), want: `map["p":"\xff"]`},
		"ConfigMap":           {property: configMapRef("x", "key", false), want: `map["p":"text"]`},
		"ConfigMap binary":    {property: configMapRef("x", "binary", false), want: `map["p":"\x01"]`},
		"no Secret":           {property: secretRef("y", "key", false), want: `property "p": there is no Secret default/y`},
		"no key":              {property: configMapRef("x", "other", false), want: `ConfigMap default/x has no key "other"`},
		"optional, no Secret": {property: secretRef("y", "key", true), want: `map[]`},
		"optional, no key":    {property: configMapRef("x", "other", true), want: `map[]`},
		"of another namespace": {property: secretRef("x", "key", true), namespace: "cameras",
			want: `Secret default/x is not in the Configuration's own namespace "cameras"; kubecri's --discovery-property-namespaces=default would allow it`},
		"of another namespace, ConfigMap":       {property: configMapRef("x", "key", false), namespace: "cameras", want: "--discovery-property-namespaces=default"},
		"of another namespace, another allowed": {property: secretRef("x", "key", false), namespace: "cameras", allowed: []string{"mics"}, want: "--discovery-property-namespaces=default"},
		"of an allowed namespace":               {property: secretRef("x", "key", false), namespace: "cameras", allowed: []string{"mics", "default"}, want: `map["p":"\xff"]`},
		"all namespaces allowed":                {property: secretRef("x", "key", false), namespace: "cameras", allowed: []string{"*"}, want: `map["p":"\xff"]`},
		"neither of the two":                    {property: v0.DiscoveryProperty{Name: "p"}, want: "neither a value nor a valueFrom"},
		"a source of no object":                 {property: v0.DiscoveryProperty{Name: "p", ValueFrom: &v0.DiscoveryPropertySource{}}, want: "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(
					&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": {0xff}}},
					&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "text"}, BinaryData: map[string][]byte{"binary": {1}}})
				if tc.namespace == "" {
					tc.namespace = "default"
				}
				f := follow(t, NewReader(client, tc.allowed), tc.namespace, tc.property)
				f.want(t, time.Hour, tc.want)
				refers := tc.property.ValueFrom != nil && !strings.Contains(tc.want, "neither") && !strings.Contains(tc.want, "would allow") && !strings.Contains(tc.want, "--discovery")
				if calls := len(client.Actions()); (calls > 0) != refers {
					t.Errorf("%d calls", calls)
				}
			})
		})
	}
}

func TestChangesAreSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		r := NewReader(client, nil)
		first := follow(t, r, "default", secretRef("x", "key", false))
		second := follow(t, r, "default", secretRef("x", "other", true))
		first.want(t, time.Second, "there is no Secret default/x")
		second.want(t, time.Second, "map[]")
		secrets := client.CoreV1().Secrets("default")
		set := func(data map[string][]byte) {
			t.Helper()
			var err error
			if secret := (&corev1.Secret{ObjectMeta: meta, Data: data}); len(data) == 0 {
				err = secrets.Delete(t.Context(), "x", metav1.DeleteOptions{})
			} else if _, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
				_, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		set(map[string][]byte{"key": []byte("1")})
		first.want(t, 0, `map["p":"1"]`)
		set(map[string][]byte{"key": []byte("1"), "other": []byte("2")})
		first.want(t, 0)
		second.want(t, 0, `map["p":"2"]`)
		set(map[string][]byte{"other": []byte("2")})
		first.want(t, 0, `has no key "key"`)
		set(nil)
		first.want(t, 0, "there is no Secret")
		second.want(t, 0, "map[]")
		set(map[string][]byte{"key": []byte("1")})
		first.want(t, 0, `map["p":"1"]`) // though it is as it was before

		// One object is read once, and no longer when nobody follows it.
		if gets := count(client, "get"); gets != 1 {
			t.Errorf("read %d times", gets)
		}
		if watches := count(client, "watch"); watches != 1 {
			t.Errorf("watched %d times", watches)
		}
		first.stop()
		second.stop()
		if len(r.objects) != 0 {
			t.Errorf("%d objects are followed by nobody", len(r.objects))
		}
		// A rule of RBAC that names the object allows a watch of one name.
		for _, action := range client.Actions() {
			if w, ok := action.(clienttesting.WatchAction); ok && w.GetWatchRestrictions().Fields.String() != "metadata.name=x" {
				t.Errorf("watches %q", w.GetWatchRestrictions().Fields)
			}
		}
	})
}

func count(client *fake.Clientset, verb string) (n int) {
	for _, action := range client.Actions() {
		if action.GetVerb() == verb {
			n++
		}
	}
	return n
}

// Where watches are not allowed the object is read again each minute.
func TestWithoutWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "1"}})
		client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no"))
		})
		f := follow(t, NewReader(client, nil), "default", configMapRef("x", "key", false))
		f.want(t, time.Second, `map["p":"1"]`)
		changed := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "2"}}
		if _, err := client.CoreV1().ConfigMaps("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.want(t, time.Minute, `map["p":"2"]`)
		f.want(t, time.Hour)
		if gets := count(client, "get"); gets < 60 || gets > 130 {
			t.Errorf("read %d times in an hour", gets)
		}
		watches := 0
		for _, action := range client.Actions() {
			if action.GetVerb() == "watch" {
				watches++
			}
		}
		if watches != 1 {
			t.Errorf("tried to watch %d times", watches)
		}
	})
}

// While the API server is away the last values stay; it is not asked more than is due.
func TestAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte("1")}})
		away, forbidden := true, false
		var mu sync.Mutex
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if forbidden {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("no"))
			}
			return away, nil, errors.New("connection refused")
		})
		var watches []*watch.FakeWatcher
		client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return true, nil, errors.New("connection refused")
			}
			watches = append(watches, watch.NewFake())
			return true, watches[len(watches)-1], nil
		})
		set := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		f := follow(t, NewReader(client, nil), "default", secretRef("x", "key", false))
		f.want(t, time.Hour, `property "p": read Secret default/x: connection refused`)
		if gets := count(client, "get"); gets < 60 || gets > 140 {
			t.Errorf("asked %d times in an hour", gets)
		}
		set(func() { away = false })
		f.want(t, time.Minute, `map["p":"1"]`)
		set(func() {
			away = true
			watches[0].Stop()
		})
		f.want(t, time.Hour)
		set(func() { away = false })
		f.want(t, time.Minute)

		// A watch that is too old is begun anew, from what is now.
		before := 0
		set(func() {
			before = len(watches)
			watches[before-1].Error(&metav1.Status{Reason: metav1.StatusReasonExpired})
		})
		f.want(t, time.Minute)
		set(func() {
			if len(watches) != before+1 {
				t.Errorf("%d watches, want one more than %d", len(watches), before)
			}
			forbidden = true // the right was taken away
			watches[len(watches)-1].Stop()
		})
		f.want(t, time.Minute, `property "p": kubecri may not read Secret default/x; allow it with kubectl create rolebinding kubeslot-discovery-properties `+
			`--namespace=default --clusterrole=kubeslot:discovery-properties --group=system:kubecris; secrets "x" is forbidden: no`)
	})
}

// The RoleBinding that is proposed is for whom the API server says that kubecri is.
func TestBinding(t *testing.T) {
	for user, want := range map[string]string{
		"system:kubecri:node-a":                         "--group=system:kubecris",
		"system:serviceaccount:kubeslot-system:kubecri": "--serviceaccount=kubeslot-system:kubecri",
		"system:node:node-a":                            "--user=system:node:node-a",
		"":                                              "--group=system:kubecris",
	} {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", fmt.Errorf("User %q cannot get resource \"secrets\"", user))
		if got := binding(reference{kind: secret, namespace: "cameras", name: "x"}, err); got !=
			"allow it with kubectl create rolebinding kubeslot-discovery-properties --namespace=cameras --clusterrole=kubeslot:discovery-properties "+want {
			t.Errorf("%q: %s", user, got)
		}
	}
}
