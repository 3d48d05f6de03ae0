// Package cmd_test tests the programs of all discovery handlers as the node runs them.
package cmd_test

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// programs are the handlers' names, and whether they register their devices as shared:
// where Akri has the handler, as Akri's does.
var programs = map[string]struct {
	handler string
	shared  bool
	env     []string
}{
	"debug-echo-discovery": {handler: "debugEcho", env: []string{"DEBUG_ECHO_INSTANCES_SHARED=false"}},
	"mdns-discovery":       {handler: "mdns", shared: true},
	"onvif-discovery":      {handler: "onvif", shared: true},
	"opcua-discovery":      {handler: "opcua", shared: true},
	"template-discovery":   {handler: "template"},
	"udev-discovery":       {handler: "udev"},
	"usb-discovery":        {handler: "usb"},
}

// agent hands on what registers.
type agent struct {
	pb.UnimplementedRegistrationServer
	registered chan *pb.RegisterDiscoveryHandlerRequest
}

func (a *agent) RegisterDiscoveryHandler(_ context.Context, request *pb.RegisterDiscoveryHandlerRequest) (*pb.Empty, error) {
	a.registered <- request
	return &pb.Empty{}, nil
}

func TestPrograms(t *testing.T) {
	built := t.TempDir()
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", built, "./...") // as images have them
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	entries, err := os.ReadDir(built)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() == "discover" {
			continue // no handler's
		}
		t.Run(entry.Name(), func(t *testing.T) {
			t.Parallel()
			want, ok := programs[entry.Name()]
			if !ok {
				t.Fatal("the table of programs does not have it")
			}
			path := filepath.Join(built, entry.Name())
			wantStatic(t, path)
			help, err := exec.Command(path, "--help").CombinedOutput()
			if err != nil || !strings.Contains(string(help), `handler "`+want.handler+`"`) {
				t.Errorf("--help: %v\n%s", err, help)
			}
			wantRegistration(t, path, want.handler, want.shared, want.env)
		})
	}
	for name := range programs {
		if _, err := os.Stat(filepath.Join(built, name)); err != nil {
			t.Errorf("program %s is missing", name)
		}
	}
}

// wantStatic fails for a program that needs a dynamic linker: its image has none.
func wantStatic(t *testing.T, path string) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("is not static")
		}
	}
}

// wantRegistration runs the program with Akri's environment.
func wantRegistration(t *testing.T, path, name string, shared bool, env []string) {
	t.Helper()
	dir := t.TempDir()
	l, err := unixsocket.Listen(filepath.Join(dir, pb.RegistrationSocket))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{registered: make(chan *pb.RegisterDiscoveryHandlerRequest, 1)}
	server := grpc.NewServer()
	pb.RegisterRegistrationServer(server, a)
	go server.Serve(l)
	t.Cleanup(server.Stop)

	var output bytes.Buffer
	program := exec.Command(path)
	program.Env = append(env, "DISCOVERY_HANDLERS_DIRECTORY="+dir, "RUST_LOG=info")
	program.Stderr = &output
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	t.Cleanup(func() { program.Process.Kill() })

	select {
	case got := <-a.registered:
		if got.GetName() != name || got.GetShared() != shared || got.GetEndpointType() != pb.RegisterDiscoveryHandlerRequest_UDS ||
			got.GetEndpoint() != filepath.Join(dir, name+".sock") {
			t.Errorf("registered %v", got)
		}
	case err := <-ended:
		t.Fatalf("ended: %v\n%s", err, output.String())
	case <-time.After(time.Minute):
		t.Fatal("waited a minute for the registration")
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Next(t, "the end after SIGTERM", ended); err != nil {
		t.Errorf("ended after SIGTERM: %v\n%s", err, output.String())
	}
}
