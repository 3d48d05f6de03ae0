package helm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/docs"
)

// The commands and objects of docs/getting-started.md, one after the other, as a reader
// types them.
func TestGettingStarted(t *testing.T) {
	in := up(t, 10*time.Minute)
	in.kubectl("delete", "namespace", namespace, "--ignore-not-found") // a reader has none yet
	before := in.state()
	commands, err := docs.Commands(root, "docs/getting-started.md")
	in.check(err)
	objects, err := docs.Objects(root, "docs/getting-started.md")
	in.check(err)
	if len(commands) < 14 || len(objects) != 2 {
		t.Fatalf("the page has %d commands and %d objects, it was 14 and 2 at least: %q", len(commands), len(objects), commands)
	}
	dir := t.TempDir()
	for _, command := range commands {
		words := strings.Fields(command)
		switch begins := func(begin string) bool { return docs.Begins(begin, command) }; {
		case begins("make"):
			// The images are there, under another name: see TestMake of test/docs.
		case begins("helm"):
			in.runHelm(command)
		case begins("go install"):
			build := exec.CommandContext(in.ctx, "go", words[1:]...)
			build.Dir, build.Env = root, append(os.Environ(), "GOBIN="+dir)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		case begins("kubectl kubeslot"):
			if waits := in.viewer(corev1.PodPending); waits != "" {
				words = strings.Fields(strings.ReplaceAll(command, "<the one that waits>", waits))
			}
			// By the plugin that was just made, which kubectl finds on the PATH.
			shown := exec.CommandContext(in.ctx, filepath.Join(in.BinDir(), "kubectl"), words[1:]...)
			shown.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+in.Kubeconfig())
			out, err := shown.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
			in.kubeslotShows(command, string(out))
		case begins("kubectl apply -f"):
			file := filepath.Join(dir, words[3])
			in.check(os.WriteFile(file, []byte(onNodes(t, objects[0])), 0o600))
			in.kubectl("apply", "-f", file)
			if objects = objects[1:]; len(objects) == 1 {
				in.awaitInstances("default", "cameras", 2, "node-a", "node-b")
			} else {
				in.await("two viewers to run and one to wait", in.viewers(2, 1))
			}
		case begins("kubectl"):
			in.kubectl(words[1:]...)
		default:
			t.Fatalf("how is this run? %s", command)
		}
	}
	in.expect(before, " "+namespace+"/") // the namespace has gone, with what was in it
}

// kubeslotShows checks what a `kubectl kubeslot` of the page prints, and does what the page
// says to do then.
func (in *install) kubeslotShows(command, out string) {
	in.Helper()
	switch {
	case docs.Begins("kubectl kubeslot slots", command):
		if strings.Count(out, "viewers-") != 4 {
			in.Errorf("%s does not show four slots that are held:\n%s", command, out)
		}
	case docs.Begins("kubectl kubeslot pod", command):
		if !strings.Contains(out, "akri.sh/cameras") {
			in.Errorf("%s says\n%s", command, out)
		}
		// "Delete a pod that runs: the one that waits gets its cameras." That, or its successor.
		runs := in.viewer(corev1.PodRunning)
		in.kubectl("delete", "pod", runs, "--grace-period=1")
		in.await("two others to run", func() (bool, string) {
			out := in.kubectl("get", "pods", "-l", "app=viewers", "--field-selector", "status.phase=Running", "-o", "name")
			return strings.Count(out, "pod/") == 2 && !strings.Contains(out, runs), out
		})
	default:
		in.Errorf("what should %s show?", command)
	}
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

// onNodes has the pods of an object use an image that the nodes have.
func onNodes(t *testing.T, object string) string {
	t.Helper()
	image := regexp.MustCompile(`(?m)^( *)image: busybox\n *command:.*$`)
	if strings.Contains(object, "image:") && !image.MatchString(object) {
		t.Fatalf("the object has another image:\n%s", object)
	}
	return image.ReplaceAllString(object, fmt.Sprintf("${1}image: %s\n${1}imagePullPolicy: Never", cluster.AppImage))
}
