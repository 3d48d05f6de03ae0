package mdns

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/test/need"
)

const childEnv = "KUBESLOT_MDNS_TEST"

// inNewNamespace runs the calling test again, in a process with a network namespace of
// its own, and reports what came of it. There it returns true, and the test goes on.
func inNewNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			err = addressesReadyAtOnce()
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot make a network namespace")
	}
	t.Parallel() // each has a network of its own
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("cannot make a network namespace: %v", err)
	case err != nil:
		t.Errorf("in a network namespace: %v\n%s", err, output)
	case strings.Contains(string(output), "--- SKIP: "+t.Name()):
		t.Skipf("%s", output)
	case !strings.Contains(string(output), "--- PASS: "+t.Name()):
		t.Errorf("the test did not run:\n%s", output)
	default:
		t.Logf("%s", output)
	}
	return false
}

// neighbour is a host of its own at the other ends of cables: a network namespace.
type neighbour struct {
	t    *testing.T
	pid  int // of a process in the namespace
	file *os.File
}

func newNeighbour(t *testing.T) *neighbour {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	// Pdeathsig goes by the thread.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	n := &neighbour{t: t, pid: cmd.Process.Pid, file: file}
	n.do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), addressesReadyAtOnce())
	})
	return n
}

// addressesReadyAtOnce has this thread's network namespace not look for others that have the
// same IPv6 addresses, which takes seconds: nobody has.
func addressesReadyAtOnce() error {
	return errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/all/accept_dad", []byte("0"), 0),
		os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0))
}

// do calls f in the neighbour's namespace. Sockets that it opens stay there.
func (n *neighbour) do(f func() error) {
	n.t.Helper()
	err := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if e := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); e != nil {
			err <- fmt.Errorf("setns: %w", e)
			return
		}
		err <- f()
	}()
	if err := <-err; err != nil {
		n.t.Fatal(err)
	}
}

// cable connects our interface of a name with the neighbour's of the same name, and waits
// until the addresses, such as 10.0.0.1/24, can be used. The neighbour has theirs.
func (n *neighbour) cable(device string, ours, theirs []string) {
	n.t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "peer-" + device}
	if err := netlink.LinkAdd(veth); err != nil {
		n.t.Fatalf("add a veth: %v", err)
	}
	peer, err := netlink.LinkByName("peer-" + device)
	if err == nil {
		err = netlink.LinkSetNsPid(peer, n.pid)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.do(func() error {
		peer, err := netlink.LinkByName("peer-" + device)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetName(peer, device), configure(device, theirs))
	})
	if err := configure(device, ours); err != nil {
		n.t.Fatal(err)
	}
	n.do(func() error { return addressesReady(device) })
	if err := addressesReady(device); err != nil {
		n.t.Fatal(err)
	}
}

func configure(device string, addresses []string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("add %s to %s: %w", text, device, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// addressesReady waits until no address is tentative and there is a link-local one.
func addressesReady(device string) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		ready := 0
		for _, a := range addresses {
			if a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
				ready++
			}
		}
		if ready > 0 && ready == len(addresses) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("IPv6 addresses of %s are not ready: %v", device, addresses)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// open opens an mDNS socket at the neighbour's end of a cable.
func (n *neighbour) open(device string, v6 bool) *socket {
	n.t.Helper()
	var s *socket
	n.do(func() error {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		s, err = openSocket(i.Index, v6)
		return err
	})
	n.t.Cleanup(s.close)
	return s
}

// start runs a program at the neighbour, in the mount namespace of the neighbour. It
// returns the program's lines of output; the channel is closed when the program ends.
func (n *neighbour) start(env []string, command ...string) (*exec.Cmd, <-chan string) {
	n.t.Helper()
	args := append([]string{"--target", fmt.Sprint(n.pid), "--net", "--mount", "--"}, command...)
	cmd := exec.Command(need.Program(n.t, "apt-get install util-linux", "nsenter"), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, writer, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		n.t.Fatalf("run nsenter: %v", err)
	}
	_ = writer.Close()
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = output.Close()
	})
	return cmd, lines
}

// say waits for a line of output that contains want.
func say(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	var said []string
	for {
		select {
		case line, ok := <-lines:
			said = append(said, line)
			if !ok {
				t.Fatalf("the program ended before it said %q:\n%s", want, strings.Join(said, "\n"))
			}
			if strings.Contains(line, want) {
				return
			}
		case <-deadline:
			t.Fatalf("the program has not said %q:\n%s", want, strings.Join(said, "\n"))
		}
	}
}

// dial returns a socket of another address of the neighbour that sends to the group.
func (n *neighbour) dial(from string) net.Conn {
	n.t.Helper()
	var conn net.Conn
	n.do(func() (err error) {
		dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))}
		conn, err = dialer.Dial("udp4", group4.String())
		return err
	})
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}
