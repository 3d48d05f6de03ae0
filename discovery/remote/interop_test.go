package remote

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/need"
	"github.com/kubeslot/kubeslot/test/npm"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// jsHandler is testdata/handler.js, which runs.
type jsHandler struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	events  chan jsEvent
}

type jsEvent struct {
	Event      string             `json:"event"`
	Details    string             `json:"details"`
	Properties map[string]*[]byte `json:"properties"`
	Error      string             `json:"error"`
}

func startJS(t *testing.T, modules string, s *Server, endpoint string) *jsHandler {
	t.Helper()
	proto, err := filepath.Abs("../../types/discovery/v0/discovery.proto")
	if err != nil {
		t.Fatal(err)
	}
	h := &jsHandler{events: make(chan jsEvent, 100)}
	h.command = exec.Command("node", "testdata/handler.js", proto, filepath.Join(s.config.Directory, pb.RegistrationSocket), endpoint)
	h.command.Env = append(os.Environ(), "NODE_PATH="+modules)
	h.command.Stderr = os.Stderr
	if h.stdin, err = h.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var event jsEvent
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				h.events <- event
			}
		}
	}()
	return h
}

func (h *jsHandler) kill() {
	h.command.Process.Kill()
	h.command.Wait()
}

func (h *jsHandler) await(t *testing.T, event string) jsEvent {
	t.Helper()
	for {
		if got := await.Next(t, "the handler's event "+event, h.events); got.Event == event {
			return got
		}
	}
}

// sees makes the handler report a DiscoverResponse, as JSON.
func (h *jsHandler) sees(t *testing.T, response string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.stdin, response); err != nil {
		t.Fatal(err)
	}
}

// A handler in another language, with another gRPC, generated from the .proto: it
// registers, streams, is cancelled, refuses, is killed and comes back.
func TestAHandlerInJavaScript(t *testing.T) {
	modules := npm.Install(t, "@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")
	for name, endpoint := range map[string]string{
		"unix socket": "", "network": fmt.Sprint("http://127.0.0.1:", need.Port(t)),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			if endpoint == "" {
				endpoint = filepath.Join(s.config.Directory, "js.sock")
			}
			run(t, s)
			h := startJS(t, modules, s, endpoint)
			h.await(t, "registered")
			found := sources(s, "js")
			if len(found) != 1 || found[0].ID != "js@"+endpoint {
				t.Fatalf("sources are %v, want the handler's", found)
			}
			source := found[0]

			first := start(t, source, discovery.Request{Details: "a: b", Properties: map[string][]byte{"set": []byte("\x00\xff"), "unset": nil}})
			asked := h.await(t, "discover")
			set := []byte("\x00\xff")
			if diff := cmp.Diff(jsEvent{Event: "discover", Details: "a: b", Properties: map[string]*[]byte{"set": &set, "unset": nil}}, asked); diff != "" {
				t.Errorf("the handler is asked (-want +got):\n%s", diff)
			}
			h.sees(t, `{"devices": [{"id": "d", "properties": {"K": "ü"}, `+
				`"mounts": [{"container_path": "/c", "host_path": "/h", "read_only": true}], `+
				`"device_specs": [{"container_path": "/dev/c", "host_path": "/dev/h", "permissions": "rw"}]}]}`)
			want := discovery.Result{Shared: true, Devices: []discovery.Device{{ID: "d", Properties: map[string]string{"K": "ü"},
				Mounts:      []discovery.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}},
				DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "rw"}}}}}
			if diff := cmp.Diff(want, await.Next(t, "the device", first.reports)); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}

			// Cancelling one stream makes the handler register again; the other goes on.
			second := start(t, source, discovery.Request{Details: "second"})
			await.Next(t, "the device, once more", second.reports)
			second.cancel()
			h.await(t, "cancelled")
			h.await(t, "registered")
			h.sees(t, `{"devices":[],"warnings":["from js"]}`)
			if got := await.Next(t, "the end of the device", first.reports); len(got.Devices) != 0 {
				t.Errorf("reported %+v, want no devices", got)
			}
			if got := await.Next(t, "the warning", first.warnings); got != "from js" {
				t.Errorf("the warning is %q", got)
			}

			refused := start(t, source, discovery.Request{Details: "refuse"})
			if err := await.Next(t, "the refusal", refused.done); !errors.Is(err, discovery.ErrInvalid) ||
				!strings.Contains(err.Error(), "no such details") {
				t.Errorf("Discover() = %v, want the refusal of the details", err)
			}

			renewed := source.Renewed()
			h.kill()
			if err := await.Next(t, "the end of the stream", first.done); err == nil {
				t.Error("Discover() = nil for a handler that was killed")
			}
			os.Remove(filepath.Join(s.config.Directory, "js.sock"))
			h = startJS(t, modules, s, endpoint)
			await.Next(t, "the registration that ends the backoff", renewed)
			h.sees(t, `{"devices":[{"id":"d"}]}`)
			again := start(t, source, discovery.Request{})
			if got := ids(await.Next(t, "the device after the restart", again.reports)); got != "d" {
				t.Errorf("reported %q, want d", got)
			}
		})
	}
}
