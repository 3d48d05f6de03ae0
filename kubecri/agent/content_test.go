package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/hostpaths"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Pods that use a device are told when it is another, and when it is gone.
func TestHoldersAreNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), silent()
		bus := func(n string) discovery.Device {
			return discovery.Device{ID: "foo0", Properties: map[string]string{"BUS": n, "SAME": ""},
				DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/stick", HostPath: "/dev/null"}}}
		}
		set := func(devices ...discovery.Device) {
			handler.change(func() { handler.result = &discovery.Result{Shared: true, Devices: devices} })
		}
		api.allow(t, hostpaths.Default...)
		agent := api.start(t, "node-a", handler)
		set(bus("7"))
		agent.wantNotified(t)
		set(bus("9"))
		agent.wantNotified(t, "cam-8120fe DeviceChanged The device of Instance cam-8120fe has changed on node node-a: property BUS. ")
		moved := bus("9")
		moved.DeviceSpecs = []discovery.DeviceSpec{{ContainerPath: "/dev/stick", HostPath: "/dev/zero"}}
		pass(noticeInterval)
		set(moved)
		agent.wantNotified(t, "cam-8120fe DeviceChanged The device of Instance cam-8120fe has changed on node node-a: device nodes. ")
		set(moved)
		agent.wantNotified(t)
		set()
		agent.wantNotified(t, "cam-8120fe DeviceGone ")
		set(moved)
		agent.wantNotified(t)

		// What changed while the agent was away.
		agent.stop()
		set(bus("11"))
		again := api.start(t, "node-a", handler)
		again.wantNotified(t, "cam-8120fe DeviceChanged The device of Instance cam-8120fe has changed on node node-a: property BUS. ")
	})
}

// A device may have paths that are allowed alone: when it is reported, and also later,
// when a container is to have it.
func TestPathsAreAllowed(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "dev", "stick")
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), silent()
		api.allow(t, "/dev/null")
		agent := api.start(t, "node-a", handler)
		mount := func(id, path string) discovery.Device {
			return discovery.Device{ID: id, Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: path, ReadOnly: true}}}
		}
		handler.change(func() {
			handler.result = &discovery.Result{Shared: true, Devices: []discovery.Device{mount("foo0", link), mount("foo1", "/etc")}}
		})
		api.want(t, "node-a-0: foo0 !DevicesRejected")
		if message := api.slices(t)[0].Spec.Problems[0].Message; !strings.Contains(message, `device "foo1": mount of "/etc": `) || !strings.Contains(message, "--handler-allowed-paths") {
			t.Errorf("problem %q", message)
		}
		if device, err := agent.WaitDevice(t.Context(), "cam-8120fe"); err != nil || len(device.Mounts) != 1 {
			t.Errorf("WaitDevice() = %v, %v", device, err)
		}
		if err := errors.Join(os.Remove(link), os.Symlink("/etc", link)); err != nil {
			t.Fatal(err)
		}
		if device, err := agent.WaitDevice(t.Context(), "cam-8120fe"); err == nil || !strings.Contains(err.Error(), "which leads to /etc") || len(device.Mounts) > 0 {
			t.Errorf("WaitDevice() = %v, %v, want an error: the path leads elsewhere now", device, err)
		}
	})
}

// Over http:// whoever has the address now may answer, such as a pod that got it after the handler's. So
// it may give no paths but those that are for handlers of its name.
func TestPathsOverHTTP(t *testing.T) {
	node := discovery.DeviceSpec{ContainerPath: "/x", HostPath: "/dev/null", Permissions: "rw"}
	for allowed, want := range map[string]string{
		"/dev/null":        "node-a-0: foo0 foo1 !DevicesRejected",
		"echoes=/dev/null": "node-a-0: foo0 foo1 foo2",
	} {
		synctest.Test(t, func(t *testing.T) {
			api, remote := newAPI(configuration("cam")), silent()
			api.allow(t, allowed)
			agent := api.start(t, "node-a", seeing("foo0"))
			agent.Add(at("http://10.0.0.9:10000", remote))
			remote.change(func() {
				remote.result = &discovery.Result{Shared: true, Devices: []discovery.Device{
					{ID: "foo1"}, {ID: "foo2", DeviceSpecs: []discovery.DeviceSpec{node}}}}
			})
			api.want(t, want)
			if problems := api.slices(t)[0].Spec.Problems; len(problems) > 0 &&
				!strings.Contains(problems[0].Message, `over http:// it may give what an entry "echoes=path" there allows`) {
				t.Errorf("problem %q", problems[0].Message)
			}
		})
	}
}

// A property's value that changes restarts discovery. Until its report the old one stands,
// and it stands when the value can no longer be read.
func TestChangedPropertiesReachTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.DiscoveryHandler.DiscoveryProperties = []v0.DiscoveryProperty{{Name: "password", ValueFrom: &v0.DiscoveryPropertySource{
			SecretKeyRef: &v0.DiscoveryPropertyKeySelector{Namespace: ns, Name: "cameras", Key: "p"}}}}
		api, handler := newAPI(c), &reader{echoes: seeing("foo0")}
		agent := api.start(t, "node-a", handler)
		agent.wantEvents(t, `Warning NoDiscoveryProperties Node node-a: discovery property "password": there is no Secret cameras/cameras`)
		api.want(t, "node-a-0: !NoDiscoveryProperties")
		secrets := api.kube.CoreV1().Secrets(ns)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cameras"}, Data: map[string][]byte{"p": []byte("one")}}
		if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		api.want(t, "node-a-0: foo0")
		for _, value := range []string{"two", "two", "three"} {
			is, err := secrets.Get(t.Context(), "cameras", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			is = is.DeepCopy()
			is.Data = map[string][]byte{"p": []byte(value), "other": []byte(fmt.Sprint(time.Now()))}
			if value == "three" {
				handler.change(func() { handler.result = nil })
			}
			if _, err := secrets.Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			api.wantNow(t, "node-a-0: foo0")
		}
		if err := secrets.Delete(t.Context(), "cameras", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		api.wantNow(t, "node-a-0: foo0 !NoDiscoveryProperties")
		handler.change(func() {
			if got := strings.Join(handler.seen, " "); got != "one two three" || handler.running != 1 {
				t.Errorf("the handler was given %q, want one two three; %d run", got, handler.running)
			}
		})
		agent.wantEvents(t, `Warning NoDiscoveryProperties Node node-a: discovery property "password": there is no Secret cameras/cameras`)
	})
}

// reader remembers the passwords that it was given.
type reader struct {
	*echoes
	seen []string
}

func (r *reader) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	r.change(func() { r.seen = append(r.seen, string(request.Properties["password"])) })
	return r.echoes.Discover(ctx, request, report)
}
