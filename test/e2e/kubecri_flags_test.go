package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

// The list of the kubelet's flags in kubecri is the kubelet's.
func TestKubecriKnowsTheKubeletsFlags(t *testing.T) {
	t.Parallel()
	help, err := exec.Command(filepath.Join(shared.BinDir(), "kubelet"), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("kubelet --help: %v\n%s", err, help)
	}
	var has []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllSubmatch(help, -1) {
		if name := string(m[1]); name != "help" {
			has = append(has, name)
		}
	}
	known := kubeletargs.Flags()
	slices.Sort(has)
	slices.Sort(known)
	if !slices.Equal(has, known) {
		t.Errorf("kubecri/install/kubeletargs/flags.txt has %q, the kubelet %q", known, has)
	}
}
