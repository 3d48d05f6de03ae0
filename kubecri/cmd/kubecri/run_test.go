package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/need"
)

// fakeRuntime answers Version, which is all that /readyz asks for, and CreateContainer.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "v1"}, nil
}

func (fakeRuntime) CreateContainer(context.Context, *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	return &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil
}

func serveRuntime(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, fakeRuntime{})
	if err := os.Chmod(socket, 0o660); err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return server.Stop
}

// unreachableAPI is a kubeconfig that leads nowhere.
func unreachableAPI(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", need.Port(t))
}

// awaitAnswer asks a path until it answers with the code and all the parts.
func awaitAnswer(t *testing.T, url string, code int, parts ...string) {
	t.Helper()
	await.That(t, fmt.Sprintf("%s to answer %d with %q", url, code, parts), func() (bool, string) {
		resp, err := http.Get(url)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		ok := resp.StatusCode == code
		for _, part := range parts {
			ok = ok && strings.Contains(string(body), part)
		}
		return ok, fmt.Sprintf("%d %.2000s %v", resp.StatusCode, body, err)
	})
}

// awaitMode waits until the file has the permissions.
func awaitMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	await.That(t, fmt.Sprintf("%s to have mode %o", path, want), func() (bool, string) {
		info, err := os.Stat(path)
		if err != nil {
			return false, err.Error()
		}
		return info.Mode().Perm() == want, info.Mode().String()
	})
}

// awaitState waits until systemd is told the state.
func awaitState(t *testing.T, manager *net.UnixConn, want string) {
	t.Helper()
	if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 100); ; {
		n, err := manager.Read(buffer)
		if err != nil {
			t.Fatalf("systemd was not told %s: %v", want, err)
		}
		if string(buffer[:n]) == want {
			return
		}
	}
}

func TestHealthFollowsTheKubeletsPathAndNotTheAPI(t *testing.T) {
	// kubecri's metrics are registered with its process, once: each run has one of its own.
	const child = "KUBECRI_TEST_CHILD"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	runtimeSocket, listen, address := filepath.Join(dir, "runtime.sock"), filepath.Join(dir, "kubecri.sock"), freeAddress(t)
	o := newOptions()
	set := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
	for _, group := range o.flags().FlagSets {
		set.AddFlagSet(group)
	}
	if err := set.Parse([]string{"--listen=" + listen, "--runtime-endpoint=" + runtimeSocket, "--node-name=node-a",
		"--kubeconfig=" + unreachableAPI(t, dir), "--state-dir=" + filepath.Join(dir, "state"), "--cdi-dir=" + filepath.Join(dir, "cdi"),
		"--discovery-handlers-directory=" + filepath.Join(dir, "handlers"), "--metrics-bind-address=" + address}); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", manager.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", "1000000")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		awaitState(t, manager, "STOPPING=1")
	}()
	awaitState(t, manager, "READY=1")
	awaitState(t, manager, "WATCHDOG=1")
	url := "http://" + address

	awaitAnswer(t, url+"/healthz", http.StatusOK, "[+]socket ok")
	awaitAnswer(t, url+"/readyz", http.StatusServiceUnavailable, "[-]cri failed")
	awaitMode(t, listen, 0o600)
	awaitMode(t, filepath.Join(dir, "handlers", "agent-registration.sock"), 0o600)
	stopRuntime := serveRuntime(t, runtimeSocket)
	awaitAnswer(t, url+"/readyz", http.StatusOK, "[+]cri ok",
		"[!]informers: pods, nodes, configurations.akri.sh, deviceslices.kubeslot.io, slotclaims.kubeslot.io not read")
	awaitMode(t, listen, 0o660) // as the runtime's
	awaitAnswer(t, url+"/metrics", http.StatusOK,
		`kubecri_rpc_duration_seconds_count{method="runtime.v1.RuntimeService/Version"}`,
		`kubecri_rpc_errors_total{code="Unavailable",method="runtime.v1.RuntimeService/Version"}`, "kubecri_claims_held 0", "go_goroutines", "rest_client_requests_total")
	stopRuntime()
	awaitAnswer(t, url+"/healthz", http.StatusOK)
	awaitAnswer(t, url+"/readyz", http.StatusServiceUnavailable, "[-]cri failed")
	if err := os.Remove(listen); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(t, url+"/healthz", http.StatusServiceUnavailable, "[-]socket failed", "restart kubecri")
}

// In each mode kubecri begins and ends without API server, runtime and kubelet, and says what is missing.
func TestModesWithoutAnything(t *testing.T) {
	const child = "KUBECRI_TEST_MODE"
	for mode, says := range map[string][]string{
		modeNRI: {"[-]nri failed", "[-]cri failed", "[!]informers: pods", "[+]device-plugins ok",
			"[!]containers: list containers", "[+]checkpoint ok"},
		modeDevicePlugin: {"[+]registered ok", "[!]informers: pods", "[!]containers: list containers",
			"[+]checkpoint ok"},
	} {
		t.Run(mode, func(t *testing.T) {
			if os.Getenv(child) != mode {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestModesWithoutAnything$/^"+mode+"$")
				cmd.Env = append(os.Environ(), child+"="+mode)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				return
			}
			dir, address := t.TempDir(), freeAddress(t)
			o := newOptions()
			set := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
			for _, group := range o.flags().FlagSets {
				set.AddFlagSet(group)
			}
			args := []string{"--mode=" + mode, "--node-name=node-a", "--kubeconfig=" + unreachableAPI(t, dir),
				"--metrics-bind-address=" + address}
			for flag, file := range map[string]string{"runtime-endpoint": "runtime.sock", "nri-socket": "nri.sock",
				"kubelet-device-plugin-dir":    "kubelet/device-plugins",
				"kubelet-pod-resources-socket": "pod-resources.sock", "state-dir": "state", "cdi-dir": "cdi",
				"discovery-handlers-directory": "handlers"} {
				args = append(args, "--"+flag+"="+filepath.Join(dir, file))
			}
			if err := set.Parse(args); err != nil {
				t.Fatal(err)
			}
			if err := o.complete(); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, o) }()
			code := http.StatusOK
			if strings.HasPrefix(says[0], "[-]") {
				code = http.StatusServiceUnavailable
			}
			awaitAnswer(t, "http://"+address+"/healthz", http.StatusOK)
			awaitAnswer(t, "http://"+address+"/readyz", code, says...)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
