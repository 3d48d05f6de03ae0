package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func TestTheOldestOfTwoConfigurationsOfANameCounts(t *testing.T) {
	first, second := configuration("cam", 1), configuration("cam", 1)
	first.CreationTimestamp = metav1.Unix(100, 0)
	second.Namespace, second.UID, second.CreationTimestamp = "attic", "second", metav1.Unix(200, 0)
	api := newAPI(second)
	handler := seeing("foo0")
	node := api.start(t, "node-a", handler)
	attic := api.AkriV0().Instances("attic")
	inAttic := func(want bool) {
		t.Helper()
		eventually(t, "the Instance in the other namespace", func() error {
			_, err := attic.Get(t.Context(), "cam-8120fe", metav1.GetOptions{})
			if (err == nil) != want {
				return fmt.Errorf("want it to exist: %v; got %v", want, err)
			}
			return nil
		})
	}
	inAttic(true)

	api.configure(t, first)
	node.wantEvent(t, "Warning DuplicateName Not discovered: Configuration cameras/cam is older and has the resource akri.sh/cam. Rename this one, or delete the other.")
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	inAttic(false)

	if err := api.AkriV0().Configurations(ns).Delete(t.Context(), "cam", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	inAttic(true)
	api.wantNoInstance(t, "cam-8120fe")
}

func TestRank(t *testing.T) {
	at := func(namespace string, seconds int64) *v0.Configuration {
		return &v0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: metav1.Unix(seconds, 0)}}
	}
	deleted := at("a", 1)
	deleted.DeletionTimestamp = &deleted.CreationTimestamp
	for name, tc := range map[string]struct {
		all  []*v0.Configuration
		want string // namespaces in order
	}{
		"none":                      {},
		"the oldest":                {all: []*v0.Configuration{at("a", 3), at("b", 2), at("c", 4)}, want: "b a c"},
		"of one age, by namespace":  {all: []*v0.Configuration{at("b", 2), at("a", 2)}, want: "a b"},
		"not one on its way out":    {all: []*v0.Configuration{deleted, at("b", 2)}, want: "b"},
		"none but on their way out": {all: []*v0.Configuration{deleted}},
	} {
		t.Run(name, func(t *testing.T) {
			first, others := rank(tc.all)
			var got []string
			if first != nil {
				got = append(got, first.Namespace)
			}
			for _, c := range others {
				got = append(got, c.Namespace)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("rank() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAnUnknownHandlerIsToldOnceAndWaitedFor(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	node := api.start(t, "node-a")
	node.wantEvent(t, `Warning UnknownHandler Node node-a: no discovery handler "echoes" on this node: discovery starts when there is one`)
	if err := node.AddHandler(seeing("foo0")); err != nil {
		t.Fatal(err)
	}
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	if err := node.AddHandler(seeing()); err == nil {
		t.Error("a second handler of the name was taken")
	}
	node.stop()
	if len(node.events.Events) > 0 {
		t.Errorf("a further Event: %q", <-node.events.Events)
	}
}

func TestAFailingHandlerIsRestartedAndItsLastReportStands(t *testing.T) {
	for name, breakIt := range map[string]func(*echoes){
		`Warning DiscoveryFailed Node node-a: discovery handler "echoes": lost the network`:          func(h *echoes) { h.fail = errors.New("lost the network") },
		`Warning DiscoveryFailed Node node-a: discovery handler "echoes": panic: index out of range`: func(h *echoes) { h.panics = true },
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPI(configuration("cam", 1))
			handler := seeing("foo0")
			node := api.start(t, "node-a", handler)
			api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))

			handler.change(func() { breakIt(handler) })
			node.wantEvent(t, name)
			eventually(t, "restarts", func() error {
				handler.mu.Lock()
				defer handler.mu.Unlock()
				if handler.runs < 4 {
					return fmt.Errorf("ran %d times", handler.runs)
				}
				return nil
			})
			if _, ok := node.Device("cam-8120fe"); !ok {
				t.Error("the device went with its handler")
			}
			handler.change(func() { handler.fail, handler.panics = nil, false })
			handler.see("foo0", "foo1")
			api.wantInstance(t, instanceOf("cam", "foo1"), hasNodes("node-a"))
			node.stop()
			if writes := api.writesTo("cam-8120fe"); len(writes) != 1 {
				t.Errorf("the Instance was written to: %q", writes)
			}
		})
	}
}

func TestDevicesOfOneHashAreToldAndTheFirstIsTaken(t *testing.T) {
	first, second := collidingIDs(t)
	api := newAPI(configuration("cam", 1))
	node := api.start(t, "node-a", seeing(second, first))
	select {
	case e := <-node.events.Events:
		if !strings.HasPrefix(e, "Warning DevicesRejected Node node-a leaves out 1 devices") || !strings.Contains(e, second) {
			t.Errorf("Event %q does not say that %q is left out", e, second)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no Event")
	}
	api.wantInstance(t, instanceOf("cam", first), func(i *v0.Instance) bool { return i.Spec.BrokerProperties["ID"] == first })
}

func TestWaitDevice(t *testing.T) {
	c := configuration("cam", 1)
	c.Spec.BrokerProperties = map[string]string{"URL": "rtsp"}
	api := newAPI(c)
	handler := silent()
	node := api.start(t, "node-a", handler)

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := node.WaitDevice(short, "cam-8120fe"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for") {
		t.Errorf("WaitDevice() before any report = %v, want the deadline, and what was waited for", err)
	}

	type answer struct {
		properties map[string]string
		err        error
	}
	answers := make(chan answer, 1)
	go func() {
		d, err := node.WaitDevice(t.Context(), "cam-8120fe")
		answers <- answer{d.Properties, err}
	}()
	handler.see("foo0")
	got := <-answers
	if got.err != nil {
		t.Fatal(got.err)
	}
	if diff := cmp.Diff(map[string]string{"ID": "foo0", "URL": "rtsp"}, got.properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}

	for instance, want := range map[string]string{
		"cam-a19705":    `discovery handler "echoes" does not see it on this node`,
		"garage-8120fe": `there is no Configuration "garage"`,
		"":              `there is no Configuration ""`,
	} {
		if _, err := node.WaitDevice(t.Context(), instance); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("WaitDevice(%q) = %v, want %s", instance, err, want)
		}
	}

	handler.see()
	eventually(t, "Device()", func() error {
		if _, ok := node.Device("cam-8120fe"); ok {
			return errors.New("still finds what is gone")
		}
		return nil
	})
}

func TestDiscoveryProperties(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "x"}
	client := kubefake.NewClientset(
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": {0xff}}},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "text"}, BinaryData: map[string][]byte{"binary": {1}}},
	)
	yes, value := true, "v"
	secret := func(name, key string, optional *bool) v0.DiscoveryProperty {
		return v0.DiscoveryProperty{Name: "p", ValueFrom: &v0.DiscoveryPropertySource{
			SecretKeyRef: &v0.DiscoveryPropertyKeySelector{Name: name, Key: key, Optional: optional}}}
	}
	configMap := func(name, key string, optional *bool) v0.DiscoveryProperty {
		return v0.DiscoveryProperty{Name: "p", ValueFrom: &v0.DiscoveryPropertySource{
			ConfigMapKeyRef: &v0.DiscoveryPropertyKeySelector{Name: name, Namespace: "default", Key: key, Optional: optional}}}
	}
	for name, tc := range map[string]struct {
		property  v0.DiscoveryProperty
		namespace string   // the Configuration's, "default" when empty
		allowed   []string // other namespaces
		want      map[string][]byte
		wantErr   string
	}{
		"value":               {property: v0.DiscoveryProperty{Name: "p", Value: &value}, want: map[string][]byte{"p": []byte("v")}},
		"Secret":              {property: secret("x", "key", nil), want: map[string][]byte{"p": {0xff}}},
		"ConfigMap":           {property: configMap("x", "key", nil), want: map[string][]byte{"p": []byte("text")}},
		"ConfigMap binary":    {property: configMap("x", "binary", nil), want: map[string][]byte{"p": {1}}},
		"no Secret":           {property: secret("y", "key", nil), wantErr: `property "p": read Secret default/y`},
		"no key":              {property: configMap("x", "other", nil), wantErr: `ConfigMap default/x has no key "other"`},
		"optional, no Secret": {property: secret("y", "key", &yes), want: map[string][]byte{}},
		"optional, no key":    {property: configMap("x", "other", &yes), want: map[string][]byte{}},
		"of another namespace": {property: secret("x", "key", &yes), namespace: "cameras",
			wantErr: `Secret default/x is not in the Configuration's own namespace "cameras"; kubecri's --discovery-property-namespaces=default would allow it`},
		"of another namespace, ConfigMap":       {property: configMap("x", "key", nil), namespace: "cameras", wantErr: "--discovery-property-namespaces=default"},
		"of another namespace, another allowed": {property: secret("x", "key", nil), namespace: "cameras", allowed: []string{"mics"}, wantErr: "--discovery-property-namespaces=default"},
		"of an allowed namespace":               {property: secret("x", "key", nil), namespace: "cameras", allowed: []string{"mics", "default"}, want: map[string][]byte{"p": {0xff}}},
		"all namespaces allowed":                {property: secret("x", "key", nil), namespace: "cameras", allowed: []string{"*"}, want: map[string][]byte{"p": {0xff}}},
		"neither of the two":                    {property: v0.DiscoveryProperty{Name: "p"}, wantErr: "neither a value nor a valueFrom"},
		"a source of no object":                 {property: v0.DiscoveryProperty{Name: "p", ValueFrom: &v0.DiscoveryPropertySource{}}, wantErr: "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			from := readable{own: "default", others: tc.allowed}
			if tc.namespace != "" {
				from.own = tc.namespace
			}
			got, err := resolve(t.Context(), client, from, []v0.DiscoveryProperty{tc.property})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("resolve() = %v, want an error with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("resolve() (-want +got):\n%s", diff)
			}
		})
	}
}
