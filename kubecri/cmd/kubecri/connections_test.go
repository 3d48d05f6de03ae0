package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/deploy/systemd"
	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/test/await"
)

// Clients on the network that connect and ask for nothing keep neither others nor the
// kubelet from kubecri: containers are created on new connections, and checkpoint and CDI specs
// are written, though the process may open but 1,024 files, of which /readyz warns.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	const child = "KUBECRI_TEST_CONNECTIONS"
	if dir := os.Getenv(child); dir != "" {
		serveLimited(t, dir)
		return
	}
	const connections = 5000
	mayOpen(t, connections+500)
	dir := t.TempDir()
	serveRuntime(t, filepath.Join(dir, "runtime.sock"))
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+dir, "PORT="+port)
	cmd.Stderr = io.Discard
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	defer func() {
		orders.Close() // which ends it
		var said strings.Builder
		for lines.Scan() {
			fmt.Fprintln(&said, lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, said.String())
		}
	}()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 20 * time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	honest := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	ready := func() error {
		response, err := honest.Get("https://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), "[!]open-files") || !strings.Contains(string(body), "LimitNOFILE=65536") {
			return fmt.Errorf("%d %s %w", response.StatusCode, body, err)
		}
		return nil
	}
	await.That(t, "kubecri to be ready", ready)
	before, memory := process(t, cmd.Process.Pid)
	t.Logf("before: %d descriptors, %d KiB", before, memory)

	most := 0
	for i := range connections {
		// A third each from ten addresses: silent, half a TLS handshake, and no handshake.
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%10))}, Timeout: 20 * time.Second}
		c, err := from.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, []string{"", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET /"}[i%3]) // it may be closed
		if i%500 != 499 {
			continue
		}
		now, _ := process(t, cmd.Process.Pid)
		most = max(most, now)
		await.That(t, "another address to be answered", ready)
		if err := createContainer(t, filepath.Join(dir, "kubecri.sock")); err != nil {
			t.Errorf("after %d connections: %v", i+1, err)
		}
		if _, err := fmt.Fprintln(orders, i); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "checkpoint") {
		}
		if said := lines.Text(); said != fmt.Sprintf("checkpoint %d: <nil>", i) || lines.Err() != nil {
			t.Errorf("after %d connections: %s, %v", i+1, said, lines.Err())
		}
		if specs, err := filepath.Glob(filepath.Join(dir, "specs", fmt.Sprintf("*camera-%d.*", i))); err != nil || len(specs) != 1 {
			t.Errorf("after %d connections: CDI specs %q, %v", i+1, specs, err)
		}
	}
	now, after := process(t, cmd.Process.Pid)
	t.Logf("with %d connections: %d descriptors, at most %d; %d KiB", connections, now, most, after)
	bound := 64 << 10
	if raceDetector() {
		bound *= 4 // the race detector keeps memory of its own beside the program's
	}
	if grown := after - memory; grown > bound {
		t.Errorf("%d KiB of anonymous memory more, want at most %d", grown, bound)
	}
	if bound := before + health.MaxConnections + 32; most > bound {
		t.Errorf("%d descriptors, want at most %d", most, bound)
	}
}

// raceDetector reports that the tests are built with -race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// serveLimited is kubecri, with few descriptors. A line on stdin has it write its checkpoint.
func serveLimited(t *testing.T, dir string) {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1024, Max: 1024}); err != nil {
		t.Fatal(err)
	}
	o := newOptions()
	set := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
	for _, group := range o.flags().FlagSets {
		set.AddFlagSet(group)
	}
	if err := set.Parse([]string{"--listen=" + filepath.Join(dir, "kubecri.sock"), "--runtime-endpoint=" + filepath.Join(dir, "runtime.sock"), "--node-name=node-a",
		"--kubeconfig=" + unreachableAPI(t, dir), "--state-dir=" + filepath.Join(dir, "state"), "--cdi-dir=" + filepath.Join(dir, "cdi"),
		"--discovery-handlers-directory=" + filepath.Join(dir, "handlers"), "--metrics-bind-address=0.0.0.0:" + os.Getenv("PORT")}); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	writer := checkpoint.NewWriter(filepath.Join(dir, "written.json"))
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		_, err := writer.Write(checkpoint.Checkpoint{Claims: []checkpoint.Claim{{Slot: "camera-" + orders.Text()}}})
		// Once: Run brings the specs up to date before it looks at the context.
		once, done := context.WithCancel(ctx)
		done()
		cdi.NewInjector(filepath.Join(dir, "specs"), nil).Run(once, oneCamera("camera-"+orders.Text()))
		fmt.Printf("checkpoint %s: %v\n", orders.Text(), err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// oneCamera is a node that sees the Instance's device alone.
type oneCamera string

func (c oneCamera) Devices() (map[string]discovery.Device, <-chan struct{}) {
	return map[string]discovery.Device{string(c): {ID: string(c), DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/null", HostPath: "/dev/null", Permissions: "r"}}}}, nil
}

func (c oneCamera) Gone(instance string) bool { return instance != string(c) }

// mayOpen has the process open so many files, or skips the test, or in CI fails it.
func mayOpen(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err == nil && limit.Cur < limit.Max {
		limit.Cur = limit.Max
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	switch {
	case err == nil && limit.Cur >= files:
	case os.Getenv("CI") == "true":
		t.Fatalf("may open %d files, want %d: %v", limit.Cur, files, err)
	default:
		t.Skipf("may open %d files: %v", limit.Cur, err)
	}
}

// createContainer does it as a kubelet that has just started.
func createContainer(t *testing.T, socket string) error {
	t.Helper()
	conn, err := proxy.Dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: "s",
		Config:        &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}})
	return err
}

// process returns how many files it has open, and its anonymous memory in KiB.
func process(t *testing.T, pid int) (descriptors, memory int) {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status); m != nil {
		memory, _ = strconv.Atoi(string(m[1]))
	}
	return len(open), memory
}

// All connections that clients may have leave the unit descriptors in reserve.
func TestTheUnitHasDescriptorsInReserve(t *testing.T) {
	m := regexp.MustCompile(`(?m)^LimitNOFILE=(\d+)$`).FindStringSubmatch(systemd.Kubecri)
	if m == nil {
		t.Fatal("the unit has no LimitNOFILE")
	}
	limit, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil || limit < 4*neededDescriptors {
		t.Errorf("LimitNOFILE=%d, want at least four times %d: %v", limit, neededDescriptors, err)
	}
	if advice := descriptorAdvice(limit); advice != nil {
		t.Error(advice)
	}
	if advice := fmt.Sprint(descriptorAdvice(1024)); !strings.Contains(advice, "LimitNOFILE="+m[1]) {
		t.Errorf("the advice for 1024 is %q", advice)
	}
}
