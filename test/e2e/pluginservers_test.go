package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/npm"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Names of the programs of widgetServers.
const widgetDevice, widgetScheduler = "widget-device", "widget-scheduler"

// widgetServers are both halves of the example plugin as servers: the device half on both nodes, which have two
// boards of two widgets each.
type widgetServers struct {
	*rig
	argv, env []string
}

// serveWidgets starts the servers, written in Go or JavaScript, and takes them away at the end.
func (r *rig) serveWidgets(language string) *widgetServers {
	r.Helper()
	root := shared.Config().RepoRoot
	s := &widgetServers{rig: r}
	switch language {
	case "Go":
		program := filepath.Join(r.TempDir(), "widget")
		cmd := exec.Command("go", "build", "-o", program, "./plugins/example/server")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		s.argv = []string{program}
	case "JavaScript":
		node, err := exec.LookPath("node")
		r.check(err)
		s.env = []string{"NODE_PATH=" + npm.Install(r, "@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")}
		s.argv = []string{node, filepath.Join(root, "plugins/example/nodejs/widget.js")}
	}
	r.Cleanup(func() {
		if r.Failed() {
			r.dump(context.Background())
		}
		r.deletePods() // a node advertises what its pods hold
		for _, name := range []string{widgetDevice, widgetDevice + "-2"} {
			for _, node := range []string{nodeA, nodeB} {
				s.remove(name, node)
			}
		}
		s.remove(widgetScheduler, "")
		r.restartAll() // they forget the plugin
	})
	s.run(widgetDevice, nodeA)
	s.run(widgetDevice, nodeB)
	r.await("the nodes to have four widgets each", func() (bool, string) {
		return r.amounts("example.com/widget", 4, 4)
	})
	early := newPod("early", nodeA, nil)
	early.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/widget": resource.MustParse("1")}
	r.create(early)
	r.awaitPending("early", "no device scheduler plugin answers",
		"kubecri gives it only to containers that such a plugin assigned it to")
	s.run(widgetScheduler, "")
	r.widgets("early", 1)
	r.delete("early")
	return s
}

func (s *widgetServers) run(name, node string) {
	s.Helper()
	args := []string{"--half=device"}
	if node == "" {
		args = []string{"--half=scheduler", "--socket-folder=" + shared.SchedulerPluginSockets()}
	}
	s.check(shared.Run(cluster.Program{Name: name, On: node, Argv: slices.Concat(s.argv, args), Env: s.env}))
}

func (s *widgetServers) remove(name, node string) {
	if _, err := os.Stat(shared.LogPath(name, node)); err == nil { // it was started
		s.check(shared.RemoveProgram(name, node))
		s.check(os.Remove(shared.LogPath(name, node)))
	}
}

// widgetPod asks for widgets of the node.
func widgetPod(name, node string, n int) *v1.Pod {
	p := newPod(name, node, nil)
	p.Annotations[assignment.Annotation] =
		fmt.Sprintf(`{"runningcontainer":{"main":{"requests":{"example.com/widget":%d}}}}`, n)
	return p
}

// readyz is what the component answers to /readyz.
func (r *rig) readyz(component, node string) string {
	r.Helper()
	url := map[string]string{
		cluster.Scheduler: "https://127.0.0.1:10259/readyz", cluster.Kubecri: "http://127.0.0.1:10349/readyz"}[component]
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it signs for itself
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return shared.Dial(ctx, node, network, address)
		},
	}}
	response, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	r.check(err)
	return fmt.Sprint(response.StatusCode, " ", string(text))
}

func (r *rig) awaitReadyz(component, node string, parts ...string) {
	r.Helper()
	r.await(fmt.Sprintf("/readyz of %s %s with %q", component, node, parts), func() (bool, string) {
		text := r.readyz(component, node)
		return containsAll(text, parts), text
	})
}

// The whole way of a plugin whose halves are processes of their own, in two languages: what they say is advertised,
// placed and put into containers. While one is away, pods wait for it and say so, and nothing else does.
func TestPluginServers(t *testing.T) {
	for _, language := range []string{"Go", "JavaScript"} {
		t.Run(language, func(t *testing.T) {
			r := newRig(t)
			s := r.serveWidgets(language)
			r.create(widgetPod("first", nodeA, 2))
			first := r.widgets("first", 2)
			r.create(widgetPod("too-many", "", 3)) // no board has them
			r.awaitPending("too-many", "Never enough", "widget")

			// The node's half is away.
			r.check(shared.Kill(widgetDevice, nodeA, syscall.SIGKILL))
			r.awaitReadyz(cluster.Kubecri, nodeA, "widget", "is away")
			r.create(widgetPod("second", nodeA, 2))
			r.awaitEvent("second", `"widget"`, "is away", "--plugin-policy=widget=ignore")
			r.create(newPod("plain", nodeA, nil))
			r.awaitRunning("plain")
			r.check(shared.Start(widgetDevice, nodeA))
			if second := r.widgets("second", 2); slices.Contains(first, second[0]) {
				t.Errorf("widgets are given twice: %v and %v", first, second)
			}
			r.awaitReadyz(cluster.Kubecri, nodeA, "[+]device-plugins ok")

			// The scheduler's half is away.
			r.delete("second")
			r.check(shared.Kill(widgetScheduler, "", syscall.SIGKILL))
			r.awaitReadyz(cluster.Scheduler, "", "500")
			r.create(widgetPod("third", nodeA, 1))
			r.awaitPending("third", `"widget"`, "is away")
			r.create(newPod("plain-2", nodeA, nil))
			r.awaitRunning("plain-2")
			r.check(shared.Start(widgetScheduler, ""))
			r.widgets("third", 1)
			r.awaitReadyz(cluster.Scheduler, "", "200")

			if language == "Go" {
				s.takeOver()
				s.ignored()
			}
		})
	}
}

// takeOver starts a newer device half beside the older one, which then ends.
func (s *widgetServers) takeOver() {
	s.Helper()
	s.run(widgetDevice+"-2", nodeA)
	s.await("kubecri to call the newer server", func() (bool, string) {
		log, err := os.ReadFile(shared.LogPath(cluster.Kubecri, nodeA))
		s.check(err)
		return strings.Contains(string(log), "A newer socket of the plugin is called instead"),
			"its log does not say so"
	})
	s.check(shared.Kill(widgetDevice, nodeA, syscall.SIGKILL))
	s.create(widgetPod("by-the-newer", nodeA, 1))
	s.widgets("by-the-newer", 1)
	s.awaitReadyz(cluster.Kubecri, nodeA, "200")
	s.delete("by-the-newer")
}

// ignored stops the device half of node A, where nobody but who has its devices waits for it.
func (s *widgetServers) ignored() {
	s.Helper()
	s.check(shared.SetKubecriArgs(s.ctx, nodeA, "--plugin-policy=widget=ignore"))
	s.Cleanup(func() { s.check(shared.SetKubecriArgs(context.Background(), nodeA)) })
	s.check(shared.Kill(widgetDevice+"-2", nodeA, syscall.SIGKILL))
	s.create(widgetPod("ignored", nodeA, 1))
	s.awaitEvent("ignored", `"widget"`, "is away")
	s.awaitReadyz(cluster.Kubecri, nodeA, "200")
	s.check(shared.Start(widgetDevice+"-2", nodeA))
	s.widgets("ignored", 1)
}
