package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// The commands and objects of docs/getting-started.md, one after the other, as a reader
// types them.
func TestGettingStarted(t *testing.T) {
	in := up(t, 10*time.Minute)
	before := in.state()
	commands, objects := page(t, readFile(t, root, "docs/getting-started.md"))
	if len(commands) < 12 || len(objects) != 2 {
		t.Fatalf("the page has %d commands and %d objects, it was 12 and 2 at least", len(commands), len(objects))
	}
	dir := t.TempDir()
	for _, command := range commands {
		name, args, _ := strings.Cut(command, " ")
		if waits := in.viewer(corev1.PodPending); waits != "" {
			args = strings.ReplaceAll(args, "<the one that waits>", waits)
		}
		switch {
		case name == "make":
			continue // the images are there, under another name
		case strings.HasPrefix(command, "helm install"):
			in.install()
			continue
		case name == "helm":
			in.helm(strings.Fields(strings.Split(args, " --namespace")[0])...)
			continue
		}
		if strings.HasPrefix(args, "apply -f ") {
			file := filepath.Join(dir, strings.TrimPrefix(args, "apply -f "))
			in.check(os.WriteFile(file, []byte(objects[0]), 0o600))
			args, objects = "apply -f "+file, objects[1:]
		}
		out := in.kubectl(strings.Fields(args)...)
		switch {
		case strings.Contains(args, "apply") && len(objects) == 1:
			in.awaitInstances("default", "cameras", 2, "node-a", "node-b")
		case strings.Contains(args, "apply"):
			in.await("two viewers to run and one to wait", in.viewers(2, 1))
		case strings.HasPrefix(args, "kubeslot slots") && strings.Count(out, "viewers-") != 4:
			t.Errorf("kubectl %s does not show four slots that are held:\n%s", args, out)
		case strings.HasPrefix(args, "kubeslot pod"):
			if !strings.Contains(out, "akri.sh/cameras") {
				t.Errorf("kubectl %s says\n%s", args, out)
			}
			// "Delete one that runs: one that waits gets its cameras." That, or its successor.
			runs := in.viewer(corev1.PodRunning)
			in.kubectl("delete", "pod", runs, "--grace-period=1")
			in.await("two others to run", func() (bool, string) {
				out := in.kubectl("get", "pods", "-l", "app=viewers", "--field-selector", "status.phase=Running", "-o", "name")
				return strings.Count(out, "pod/") == 2 && !strings.Contains(out, runs), out
			})
		}
	}
	in.expect(before)
}

// viewer is the name of a viewer in the phase, "" if there is none.
func (in *install) viewer(phase corev1.PodPhase) string {
	in.Helper()
	list, err := in.kube.CoreV1().Pods("default").List(in.ctx, metav1.ListOptions{LabelSelector: "app=viewers", FieldSelector: "status.phase=" + string(phase)})
	in.check(err)
	if len(list.Items) == 0 {
		return ""
	}
	return list.Items[0].Name
}

func (in *install) viewers(running, pending int) func() (bool, string) {
	return func() (bool, string) {
		out := in.kubectl("get", "pods", "-l", "app=viewers", "-o", "jsonpath={.items[*].status.phase}")
		return strings.Count(out, "Running") == running && strings.Count(out, "Pending") == pending, out
	}
}

// page returns the commands of a page, which are indented, and its YAML, with an image that
// the nodes have.
func page(t *testing.T, text string) (commands, objects []string) {
	t.Helper()
	image := regexp.MustCompile(`(?m)^( *)image: busybox\n *command:.*$`)
	fence, block := false, ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			if fence {
				objects = append(objects, image.ReplaceAllString(block, fmt.Sprintf("${1}image: %s\n${1}imagePullPolicy: Never", cluster.AppImage)))
			}
			fence, block = !fence, ""
		case fence:
			block += strings.TrimPrefix(line, "   ")
		case regexp.MustCompile(`^ {7}(make|helm|kubectl) `).MatchString(line):
			command, _, _ := strings.Cut(trimmed, "  #")
			commands = append(commands, strings.Join(strings.Fields(command), " "))
		}
	}
	return commands, objects
}
