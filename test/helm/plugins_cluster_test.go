package helm

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/test/helm/rig"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// The example plugin from an image of its own, as docs/plugins.md has the chart run it. Its device half is restarted
// alone.
func TestPluginsInACluster(t *testing.T) {
	testAll(t, "builds an image of a plugin")
	in := up(t, 15*time.Minute)
	in.check(in.LoadImage(in.ctx, images.Component{Name: "widget", Package: "./plugins/example/server"}))
	plugin := func(half string) string {
		return fmt.Sprintf(`[{"name":"widget","args":["--half=%s"],"image":{"repository":"%s/widget","tag":%q}}]`,
			half, rig.Registry, rig.Version)
	}
	in.install("--set-json", "plugins.devices="+plugin("device"), "--set-json",
		"plugins.schedulers="+plugin("scheduler"),
		"--set", "crds.keep=false")
	in.awaitReady("kubeslot-plugin-widget")
	widgets := func(name string) {
		t.Helper()
		p := pod(name, "kubeslot", "")
		p.Annotations = map[string]string{
			assignment.Annotation: `{"runningcontainer":{"main":{"requests":{"example.com/widget":2}}}}`}
		in.create(p)
		in.awaitRunning(name)
		env := "\n" + in.kubectl("exec", name, "--", "/app", "env")
		if !strings.Contains(env, "\nWIDGETS=0-0,0-1\n") && !strings.Contains(env, "\nWIDGETS=1-2,1-3\n") {
			t.Errorf("pod %s has not two widgets of one board:\n%s", name, env)
		}
	}
	widgets("first")

	others := func() map[string]bool {
		all := in.ourPods("kubecri")
		maps.Copy(all, in.ourPods("kube-scheduler"))
		return all
	}
	before := others()
	in.kubectl("rollout", "restart", "--namespace", namespace, "daemonset/kubeslot-plugin-widget")
	in.awaitReady("kubeslot-plugin-widget", "kube-scheduler")
	in.awaitReady("kubecri")
	widgets("second")
	if diff := cmp.Diff(before, others()); diff != "" {
		t.Errorf("a restart of the plugin restarted others (-before +after):\n%s", diff)
	}
	in.delete("first", "second")
	in.uninstall()
}
