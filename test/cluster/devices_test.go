package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/await"
)

// onNode runs a command in a node's namespaces.
func onNode(n Node, argv ...string) error {
	args := append([]string{"--net=" + n.NetNS, "--mount=" + n.MountNS, "--"}, argv...)
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %q: %w: %s", n.Name, argv, err, out)
	}
	return nil
}

// devicesOfOneNode: a macvtap of one node is in that node's /sys alone, and its file
// in /dev comes and goes with it. The cgroups are in every node's /sys.
func devicesOfOneNode(t *testing.T, c *Cluster) {
	a, b := c.Nodes()[0], c.Nodes()[1]
	tap, err := c.AddMacvtap(a.Name, "cam0")
	if err != nil {
		t.Fatal(err)
	}
	inSys := filepath.Join("/sys", tap.DevPath, "uevent")
	if err := onNode(a, "test", "-f", inSys); err != nil {
		t.Error(err)
	}
	if err := onNode(b, "test", "!", "-e", inSys); err != nil {
		t.Error(err)
	}
	if err := onNode(a, "head", "-c0", tap.Device); err != nil {
		t.Errorf("the device cannot be opened: %v", err)
	}
	if _, err := c.AddMacvtap(a.Name, "cam0"); err == nil {
		t.Error("added a second interface of one name")
	}
	other, err := c.AddMacvtap(b.Name, "cam0")
	if err != nil || other.Device == tap.Device {
		t.Errorf("a device of another node: %v, %v", other, err)
	}
	for _, n := range c.Nodes() {
		if err := c.RemoveMacvtap(n.Name, "cam0"); err != nil {
			t.Error(err)
		}
	}
	if err := onNode(a, "test", "!", "-e", filepath.Dir(inSys)); err != nil {
		t.Errorf("removed: %v", err)
	}
	if _, err := os.Lstat(tap.Device); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed, and %s is there: %v", tap.Device, err)
	}
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range outermost(mounts, sysDir) {
		for _, n := range c.Nodes() {
			if err := onNode(n, "mountpoint", "-q", target); err != nil {
				t.Error(err)
			}
		}
	}
}

// machineIsReachedByMulticast: a machine answers what every node sends to a group
// that it has joined, over IPv4 and IPv6, and its programs end with it.
func machineIsReachedByMulticast(t *testing.T, c *Cluster) {
	m, err := c.AddMachine("camera")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddMachine("camera"); err == nil {
		t.Error("added a second machine of one name")
	}
	for _, network := range []struct{ name, group string }{
		{"udp4", "239.255.255.250:3702"}, {"udp4", "224.0.0.251:5353"}, {"udp6", "[ff02::c]:3702"},
	} {
		var listener *net.UDPConn
		err := inNetNS(m.NetNS, func() error {
			eth, err := net.InterfaceByName(uplink)
			if err != nil {
				return err
			}
			group, err := net.ResolveUDPAddr(network.name, network.group)
			if err != nil {
				return err
			}
			listener, err = net.ListenMulticastUDP(network.name, eth, group)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes() {
			if err := echoed(listener, n, network.name, network.group); err != nil {
				t.Errorf("%s of %s: %v", network.group, n.Name, err)
			}
		}
		listener.Close()
	}

	if err := c.Run(Program{Name: "echo", On: m.Name, Argv: []string{"sh", "-c", "echo $GREETING; exec sleep 1000"}, Env: []string{"GREETING=hello"}}); err != nil {
		t.Fatal(err)
	}
	await.Within(t, patience, "output of the program", func() error {
		out, err := os.ReadFile(c.LogPath("echo", m.Name))
		if !bytes.Contains(out, []byte("\nhello\n")) {
			return fmt.Errorf("%q: %w", out, err)
		}
		return nil
	})
	pid, err := c.PID("echo", m.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveMachine(m.Name); err != nil {
		t.Fatal(err)
	}
	if _, alive := identify(pid); alive {
		t.Error("the program outlives its machine")
	}
	again, err := c.AddMachine("camera")
	if err != nil || again.IP != m.IP {
		t.Errorf("the machine added again: %v, %v; want address %s", again, err, m.IP)
	}
	if err := c.RemoveMachine(again.Name); err != nil {
		t.Error(err)
	}
}

// echoed sends from the node to the group, and from who hears it back to the node.
func echoed(listener *net.UDPConn, from Node, network, group string) error {
	return inNetNS(from.NetNS, func() error {
		to, err := net.ResolveUDPAddr(network, group)
		if err != nil {
			return err
		}
		if network == "udp6" {
			to.Zone = uplink
		}
		sender, err := net.ListenUDP(network, nil)
		if err != nil {
			return err
		}
		defer sender.Close()
		// UDP may lose a datagram, above all on an interface that has just come up: whoever
		// looks for devices asks again.
		deadline := time.Now().Add(20 * time.Second)
		buffer := make([]byte, 100)
		var n int
		var back *net.UDPAddr
		for {
			if _, err := sender.WriteToUDP([]byte(from.Name), to); err != nil {
				return err
			}
			if err := listener.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				return err
			}
			n, back, err = listener.ReadFromUDP(buffer)
			if err == nil && string(buffer[:n]) == from.Name {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("heard %q: %w", buffer[:n], err)
			}
		}
		if err := sender.SetDeadline(deadline.Add(time.Second)); err != nil {
			return err
		}
		if _, err := listener.WriteToUDP(buffer[:n], back); err != nil {
			return err
		}
		if n, _, err = sender.ReadFromUDP(buffer); err != nil || string(buffer[:n]) != from.Name {
			return fmt.Errorf("answer %q: %w", buffer[:n], err)
		}
		return nil
	})
}

func TestOutermostMounts(t *testing.T) {
	var mounts []mount
	for _, target := range strings.Fields("/ /sys /system /sys/fs/cgroup /sys/fs/cgroup/cpu /sys/fs/cgroup /sys/kernel/debug /sys/kernel/debug/tracing /sys/fs/cgroup2") {
		mounts = append(mounts, mount{target: target})
	}
	want := []string{"/sys/fs/cgroup", "/sys/kernel/debug", "/sys/fs/cgroup2"}
	if got := outermost(mounts, "/sys"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckInotify(t *testing.T) {
	if err := checkInotify(1); err != nil {
		t.Error(err)
	}
	if err := checkInotify(1 << 20); err == nil || !strings.Contains(err.Error(), "sysctl fs.inotify.max_user_instances") {
		t.Errorf("a million instances: %v, want to be told of the setting", err)
	}
}
