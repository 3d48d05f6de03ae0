package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func TestTheOldestOfTwoConfigurationsOfANameCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := configuration("cam"), configuration("cam")
		first.CreationTimestamp = metav1.Unix(100, 0)
		second.Namespace, second.UID, second.CreationTimestamp = "attic", "second", metav1.Unix(200, 0)
		api := newAPI(second)
		agent := api.start(t, "node-a", seeing("foo0"))
		wantNamespace := func(want string) {
			t.Helper()
			api.want(t, "node-a-0: foo0")
			if got := api.slices(t)[0].Spec.Devices[0].Configuration.Namespace; got != want {
				t.Errorf("the device is that of namespace %s, want %s", got, want)
			}
		}
		wantNamespace("attic")
		api.configure(t, first)
		wantNamespace(ns)
		agent.wantEvents(t, "Warning DuplicateName Not discovered: Configuration cameras/cam is older and has the resource akri.sh/cam. Rename this one, or delete the other.")
		if err := api.AkriV0().Configurations(ns).Delete(t.Context(), "cam", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantNamespace("attic")
	})
}

func TestAnUnknownHandlerIsToldOnceAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		agent := api.start(t, "node-a")
		agent.wantEvents(t, `Warning UnknownHandler Node node-a: no discovery handler "echoes" on this node: discovery starts when there is one`)
		api.want(t, "node-a-0: !UnknownHandler")
		if err := agent.AddHandler(seeing("foo0")); err != nil {
			t.Fatal(err)
		}
		api.want(t, "node-a-0: foo0")
		if err := agent.AddHandler(seeing()); err == nil {
			t.Error("a second handler of the name was taken")
		}
		agent.wantEvents(t)
	})
}

// The last report of a handler that fails stands, and its failures are written once,
// though each is at another port.
func TestAFailingHandlerIsRestartedAndItsLastReportStands(t *testing.T) {
	for want, breakIt := range map[string]func(*echoes){
		`Warning DiscoveryFailed Node node-a: discovery handler "echoes": lost port 4000`:            func(h *echoes) { h.fail = func(run int) error { return fmt.Errorf("lost port %d", 4000+run-1) } },
		`Warning DiscoveryFailed Node node-a: discovery handler "echoes": panic: index out of range`: func(h *echoes) { h.panics = true },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, handler := newAPI(configuration("cam")), seeing("foo0")
				agent := api.start(t, "node-a", handler)
				api.want(t, "node-a-0: foo0")
				handler.change(func() { breakIt(handler) })
				agent.wantEvents(t, want)
				api.want(t, "node-a-0: foo0 !DiscoveryFailed")
				api.called()
				pass(time.Hour)
				api.wantCalls(t)
				if handler.runs < 50 || handler.runs > 80 {
					t.Errorf("ran %d times in an hour", handler.runs)
				}
				if _, ok := agent.Device("cam-8120fe"); !ok {
					t.Error("the device went with its handler")
				}
				handler.change(func() { handler.fail, handler.panics = nil, false })
				handler.see("foo0", "foo1")
				pass(3 * time.Minute)
				api.wantNow(t, "node-a-0: foo0 foo1")
				agent.wantEvents(t)
			})
		})
	}
}

func TestDevicesThatAreLeftOutAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := collidingIDs(t)
		api, handler := newAPI(configuration("cam")), seeing(second)
		agent := api.start(t, "node-a", handler)
		api.want(t, "node-a-0: "+second)
		handler.see(first, second, "")
		api.want(t, "node-a-0: "+second+" !DevicesRejected")
		why := `2 devices: device "": has no id; device "` + first + `": its hash ` + instanceOf("cam", first)[4:] + ` is also that of device "` + second +
			`", which comes first; a Configuration with spec.instanceNameDigits: 12 tells them apart`
		agent.wantEvents(t, "Warning DevicesRejected Node node-a leaves out "+why)
		if got := api.slices(t)[0].Spec.Problems[0].Message; got != "left out: "+why {
			t.Errorf("problem %q", got)
		}
		handler.see(first)
		api.want(t, "node-a-0: "+first)
	})
}

func TestWaitDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.BrokerProperties = map[string]string{"URL": "rtsp"}
		handler := silent()
		agent := newAPI(c).start(t, "node-a", handler)
		soon := func(instance string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := agent.WaitDevice(ctx, instance)
			return err
		}
		if err := soon("cam-8120fe"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for the first report") {
			t.Errorf("WaitDevice() before any report = %v, want the deadline, and what was waited for", err)
		}
		if agent.Gone("cam-8120fe") || !agent.Gone("garage-8120fe") {
			t.Error("a device is gone before the first report, or that of no Configuration is not")
		}
		_, changed := agent.Devices()
		time.AfterFunc(time.Minute, func() { handler.see("foo0") })
		device, err := agent.WaitDevice(t.Context(), "cam-8120fe")
		if err != nil {
			t.Fatal(err)
		}
		<-changed
		all, _ := agent.Devices()
		want := map[string]string{"ID": "foo0", "URL": "rtsp"}
		if !cmp.Equal(device.Properties, want) || !cmp.Equal(all["cam-8120fe"].Properties, want) || len(all) != 1 {
			t.Errorf("properties %v, and %v of all devices, want %v", device.Properties, all, want)
		}
		for instance, want := range map[string]string{
			"cam-a19705":    `discovery handler "echoes" does not see it on this node`,
			"garage-8120fe": `there is no Configuration "garage"`,
			"":              `there is no Configuration ""`,
		} {
			if err := soon(instance); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("WaitDevice(%q) = %v, want %s", instance, err, want)
			}
		}
		handler.see()
		synctest.Wait()
		if _, ok := agent.Device("cam-8120fe"); ok || !agent.Gone("cam-8120fe") {
			t.Error("what is gone is still found")
		}
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
