package deploy

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// With the policy an administrator says which nodes are in device-plugin mode, and the
// node does not.
func TestNodesMayNotChooseDevicePluginMode(t *testing.T) {
	p := policies(t, "node-mode/by-administrators.yaml")["kubeslot-node-mode"]
	const (
		plain   = `{metadata: {name: node-a, labels: {l: v}}}`
		changed = `{metadata: {name: node-a, labels: {l: w}, annotations: {a: b}}}`
		bare    = `{metadata: {name: node-a}}`
		mode    = `{metadata: {name: node-a, labels: {kubeslot.io/mode: device-plugin}}}`
		more    = `{metadata: {name: node-a, labels: {kubeslot.io/mode: device-plugin, l: v}}}`
		other   = `{metadata: {name: node-a, labels: {kubeslot.io/mode: proxy}}}`
		refused = "a node may not put itself into device-plugin mode: an administrator does, with kubectl label node node-a kubeslot.io/mode=device-plugin"
	)
	for name, tc := range map[string]struct{ before, after, want string }{
		"the label":             {plain, mode, refused},
		"on a Node without any": {bare, more, refused},
		"from another mode":     {other, mode, refused},
		"at registration":       {"", mode, refused},
		"a plain registration":  {"", plain, ""},
		"something else":        {plain, changed, ""},
		"the label stays":       {mode, more, ""},
		"the label goes":        {mode, bare, ""},
		"another mode":          {plain, other, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, subresource := range []string{"", "status"} {
				r := request{resource: nodesResource, kind: "Node", subresource: subresource, object: tc.after, old: tc.before}
				for _, r.by = range []*user.DefaultInfo{kubecri("node-a"), kubelet("node-a"), account("kubeslot-system", "kubecri", "node-a")} {
					expect(t, p, r, tc.want)
				}
				r.by = account("kube-system", "administrator", "")
				expect(t, p, r, "")
			}
		})
	}
}
