package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each device has a CDI spec on each node that sees it, as long as it does. That
// containerd, which has CDI on here, resolves the name shows in that the pod runs:
// it refuses a container with a name that no spec has.
func TestDevicesAsCDISpecs(t *testing.T) {
	r := newRig(t)
	in := r.debugEcho("cdi", 1, nil, "cdi0")[0]
	specs := func() (paths []string) {
		for _, n := range shared.Nodes() {
			paths = append(paths, filepath.Join(n.CDIDir, "kubeslot-"+in.Name+".json"))
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
