package standalone

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/npm"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// The programs serve agents that we did not write: here one in JavaScript, generated
// from the .proto.
func TestAnAgentInJavaScript(t *testing.T) {
	modules := npm.Install(t, "@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")
	for name, options := range map[string]Options{"unix socket": {}, "network": {IP: "127.0.0.1"}} {
		t.Run(name, func(t *testing.T) {
			options.Directory = t.TempDir()
			startProgram(t, sees(true, discovery.Device{ID: "d", Properties: map[string]string{"K": "ü"},
				DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "rw"}}}), options)

			proto, err := filepath.Abs("../../types/discovery/v0/discovery.proto")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("node", "testdata/agent.js", proto, filepath.Join(options.Directory, pb.RegistrationSocket), "a: b")
			cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
			cmd.Stderr = os.Stderr
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			type event struct {
				Event string
				Data  any
			}
			events := make(chan event, 100)
			go func() {
				for lines := bufio.NewScanner(stdout); lines.Scan(); {
					var e event
					if json.Unmarshal(lines.Bytes(), &e) == nil {
						events <- e
					}
				}
			}()

			registered := await.Next(t, "the registration", events)
			if got, _ := registered.Data.(map[string]any); registered.Event != "registered" || got["name"] != "fake" || got["shared"] != true {
				t.Errorf("the agent hears %+v, want the registration", registered)
			}
			device := map[string]any{"id": "d", "properties": map[string]any{"K": "ü"},
				"device_specs": []any{map[string]any{"container_path": "/dev/c", "host_path": "/dev/h", "permissions": "rw"}}}
			want := event{"devices", map[string]any{"devices": []any{device}}}
			if diff := cmp.Diff(want, await.Next(t, "the devices", events)); diff != "" {
				t.Errorf("the agent hears (-want +got):\n%s", diff)
			}
			if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			if got := await.Next(t, "the end of the stream", events); got.Event != "ended" {
				t.Errorf("the agent hears %+v, want the end of the stream that it cancels", got)
			}
			if got := await.Next(t, "the registration after that", events); got.Event != "registered" {
				t.Errorf("the agent hears %+v, want the registration again", got)
			}
		})
	}
}
