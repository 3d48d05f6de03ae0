package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Each device has a CDI spec on each node that sees it, as long as it does. That
// containerd, which has CDI on here, resolves the name shows in that the pod runs:
// it refuses a container with a name that no spec has.
func TestDevicesAsCDISpecs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.debugEcho("cdi", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(`{descriptions: [cdi0], mounts: [{containerPath: /data, hostPath: %s, readOnly: true}]}`, t.TempDir())
	}, "cdi0")[0]
	specs := func() (paths []string) {
		for _, n := range shared.Nodes() {
			paths = append(paths, filepath.Join(n.CDIDir, "kubeslot-"+d.name+".json"))
		}
		return paths
	}()
	r.await("the device's CDI specs", func() (bool, string) {
		for _, path := range specs {
			if _, err := os.Stat(path); err != nil {
				return false, err.Error()
			}
		}
		return true, ""
	})

	r.create(newPod("p", nodeA, map[string]int64{"cdi": 1}))
	r.agree("p", "cdi", 1)
	r.delete("p")
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "cdi", metav1.DeleteOptions{}))
	r.await("the device's CDI specs to be gone", func() (bool, string) {
		for _, path := range specs {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Sprint(path, ": ", err)
			}
		}
		return true, ""
	})
}

// A containerd with CDI off refuses a container that names CDI devices: there the
// device is written into the request. With CDI on again, it is named again.
func TestRuntimeWithoutCDI(t *testing.T) {
	testAll(t, "restarts containerd")
	r := newRig(t)
	r.debugEcho("nocdi", 2, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(`
descriptions: [zero]
mounts: [{containerPath: /data, hostPath: %s, readOnly: true}]
deviceSpecs: [{containerPath: /dev/cam0, hostPath: /dev/zero, permissions: r}]
`, t.TempDir())
	}, "zero")
	file := filepath.Join(shared.Nodes()[0].Dir, "containerd.toml")
	config, err := os.ReadFile(file)
	r.check(err)
	restart := func(config []byte) {
		r.check(os.WriteFile(file, config, 0o644))
		r.check(shared.Kill(cluster.Containerd, nodeA, syscall.SIGKILL))
		r.check(shared.Start(cluster.Containerd, nodeA))
		r.check(shared.AwaitServing(r.ctx, cluster.Containerd, nodeA))
	}
	off := bytes.Replace(config, []byte("enable_cdi = true"), []byte("enable_cdi = false"), 1)
	if bytes.Equal(off, config) {
		t.Fatalf("%s does not turn CDI on:\n%s", file, config)
	}
	t.Cleanup(func() {
		if now, err := os.ReadFile(file); err == nil && !bytes.Equal(now, config) {
			restart(config)
		}
	})
	for _, step := range []struct {
		pod    string
		config []byte
	}{{"off", off}, {"on-again", config}} {
		restart(step.config)
		r.create(newPod(step.pod, nodeA, map[string]int64{"nocdi": 1}))
		r.awaitRunning(step.pod)
		if got := strings.TrimSpace(r.exec(step.pod, "read", "/dev/cam0", "4")); got != "00000000" {
			t.Errorf("pod %s read from /dev/cam0: %q", step.pod, got)
		}
		if got := r.exec(step.pod, "ls", "/data"); strings.Contains(got, "no such") {
			t.Errorf("pod %s: ls /data: %q", step.pod, got)
		}
	}
}
