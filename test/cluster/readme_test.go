package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/test/docs"
)

// README says what is in a node's directory, and names the image that pods may use.
func TestREADMEHasTheNodesDirectories(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Your own pods in the demo's cluster\n")
	section, _, _ = strings.Cut(section, "\n## ")
	n := layout{filepath.Join(clustersDir, "demo")}.node("node-a")
	want := []string{n.Dir, AppImage}
	for _, path := range []string{n.ContainerdSocket, n.KubecriSocket, n.KubeletDir, n.privateDir("/var/log"), n.PodLogsDir, n.StaticPodDir, n.KubecriDir, n.HandlersDir, n.DevicePluginDir, n.CDIDir} {
		want = append(want, filepath.Base(path))
	}
	for _, w := range want {
		if !strings.Contains(section, "`"+w+"`") {
			t.Errorf("README does not say what %s is", w)
		}
	}
}

// podOfREADME runs the pod of README, and asks it what its image can do.
func podOfREADME(t *testing.T, c *Cluster) {
	typed := func(page, begin string) []string {
		t.Helper()
		command, err := docs.Command(c.Config().RepoRoot, page, begin)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(command)[1:]
	}
	run, ask := typed("README.md", "kubectl run"), typed("README.md", "kubectl exec")
	kubectl(t, c, run...)
	kubectl(t, c, "wait", "--for=condition=Ready", "pod/"+run[1], "--timeout=60s")
	if out := kubectl(t, c, ask...); !strings.Contains(out, "app env") {
		t.Errorf("%q says\n%s", ask, out)
	}
}
