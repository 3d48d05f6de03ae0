package deploy

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

var (
	slicesResource = schema.GroupVersionResource{Group: "kubeslot.io", Version: "v1alpha1", Resource: "deviceslices"}
	claimsResource = schema.GroupVersionResource{Group: "kubeslot.io", Version: "v1alpha1", Resource: "slotclaims"}
	nodesResource  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	leasesResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

const nodeNameKey = "authentication.kubernetes.io/node-name"

func kubecri(node string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: "system:kubecri:" + node, Groups: []string{"system:kubecris", "system:authenticated"}}
}

func kubelet(node string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
}

// account is a ServiceAccount's token; node is "" for one that is not a pod's.
func account(namespace, name, node string) *user.DefaultInfo {
	u := &user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	if node != "" {
		u.Extra = map[string][]string{nodeNameKey: {node}}
	}
	return u
}

// written is a DeviceSlice or a SlotClaim; more is further metadata.
func written(name, node, owner, more string) string {
	return fmt.Sprintf("metadata: {name: %s, ownerReferences: [{apiVersion: v1, kind: Node, name: %s, uid: u}]%s}\nspec: {nodeName: %s}", name, owner, more, node)
}

// A node writes what it owns and nothing of others, whatever identity it has.
func TestNodesWriteTheirOwnSlicesAndClaims(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-objects"]
	const (
		otherNode = "whose spec.nodeName is its own name"
		metadata  = "of the metadata a node may set"
		owner     = "must have its own Node object as the one owner"
		naming    = "may name its DeviceSlices only node-a-0 to node-a-99"
	)
	slice := func(name, node, owner, more string) string { return written(name, node, owner, more) }
	long := strings.Repeat("n", 250)
	// filled has devices with so many properties each, of three bytes of name and size bytes of value.
	filled := func(devices, properties, size int) string {
		var b strings.Builder
		b.WriteString(strings.TrimSuffix(slice("node-a-0", "node-a", "node-a", ""), "}") + ", devices: [")
		for i := range devices {
			fmt.Fprintf(&b, "{configuration: {namespace: default, name: cam}, id: d%06d, hash: '000000', properties: {", i)
			for j := range properties {
				fmt.Fprintf(&b, "%c: %s, ", rune(0x4e00+j), strings.Repeat("x", size)) // one character a name
			}
			b.WriteString("}},")
		}
		return b.String() + "]}"
	}
	const large, largeDevice, many = "may take at most 256 KiB", "device may take at most 64 KiB", "at most 8192 properties"
	for name, tc := range map[string]struct {
		request
		want string // "" for allowed
	}{
		"slice":                    {request{object: slice("node-a-0", "node-a", "node-a", "")}, ""},
		"slice, labelled":          {request{object: slice("node-a-0", "node-a", "node-a", ", labels: {kubeslot.io/discovery: cam}")}, ""},
		"slice, updated":           {request{object: slice("node-a-0", "node-a", "node-a", ""), old: slice("node-a-0", "node-a", "node-a", "")}, ""},
		"slice, deleted":           {request{old: slice("node-a-0", "node-a", "node-a", "")}, ""},
		"slice, made by hand":      {request{old: slice("oops", "node-a", "node-b", "")}, ""},
		"slice of a long name":     {request{by: kubecri(long), object: slice(long[:245]+"-0", long, long, "")}, ""},
		"claim":                    {request{resource: claimsResource, object: written("cam-abcdef-0", "node-a", "node-a", ", labels: {kubeslot.io/configuration: cam}")}, ""},
		"claim, deleted":           {request{resource: claimsResource, old: written("cam-abcdef-0", "node-a", "node-a", "")}, ""},
		"claim, whose pod is seen": {request{resource: claimsResource, object: written("cam-abcdef-0", "node-a", "node-a", ", annotations: {kubeslot.io/pod: ns/p}"), old: written("cam-abcdef-0", "node-a", "node-a", "")}, ""},
		"claim, of the next pod":   {request{resource: claimsResource, object: written("cam-abcdef-0", "node-a", "node-a", ", annotations: {kubeslot.io/pod: ns/q}"), old: written("cam-abcdef-0", "node-a", "node-a", ", annotations: {kubeslot.io/pod: ns/p}")}, ""},
		"kubelet's identity":       {request{by: kubelet("node-a"), object: slice("node-a-0", "node-a", "node-a", "")}, ""},
		"pod's token":              {request{by: account("kubeslot-system", "kubecri", "node-a"), object: slice("node-a-0", "node-a", "node-a", "")}, ""},
		"others' metadata stays":   {request{object: slice("node-a-0", "node-a", "node-a", ", annotations: {a: b}, labels: {c: d}, finalizers: [e/f]"), old: slice("node-a-0", "node-a", "node-a", ", annotations: {a: b}, labels: {c: d}, finalizers: [e/f]")}, ""},
		"others' metadata dropped": {request{object: slice("node-a-0", "node-a", "node-a", ""), old: slice("node-a-0", "node-a", "node-a", ", annotations: {a: b}, labels: {c: d}, finalizers: [e/f]")}, ""},
		"the controller":           {request{by: account("kubeslot-system", "kubeslot-controller", "node-a"), resource: claimsResource, old: written("cam-abcdef-0", "node-b", "node-b", "")}, ""},
		"somebody else":            {request{by: &user.DefaultInfo{Name: "admin", Groups: []string{"system:authenticated"}}, object: slice("x", "node-b", "node-c", "")}, ""},

		"another's slice":                        {request{object: slice("node-b-0", "node-b", "node-b", "")}, otherNode},
		"another's slice, updated":               {request{object: slice("node-b-0", "node-a", "node-a", ""), old: slice("node-b-0", "node-b", "node-b", "")}, otherNode},
		"another's slice, deleted":               {request{old: slice("node-b-0", "node-b", "node-b", "")}, otherNode},
		"another's claim":                        {request{resource: claimsResource, object: written("cam-abcdef-0", "node-b", "node-b", "")}, otherNode},
		"another's claim, deleted":               {request{resource: claimsResource, old: written("cam-abcdef-0", "node-b", "node-b", "")}, otherNode},
		"another's, as kubelet":                  {request{by: kubelet("node-a"), object: slice("node-b-0", "node-b", "node-b", "")}, otherNode},
		"another's, with a pod's token":          {request{by: account("kubeslot-system", "kubecri", "node-a"), old: slice("node-b-0", "node-b", "node-b", "")}, otherNode},
		"a token of no pod":                      {request{by: account("kubeslot-system", "kubecri", ""), object: slice("node-a-0", "node-a", "node-a", "")}, "only with the token of a pod"},
		"a name of the other group":              {request{by: &user.DefaultInfo{Name: "system:node:node-a", Groups: []string{"system:kubecris"}}, object: slice("node-a-0", "node-a", "node-a", "")}, "token"},
		"a slice of a longer node's name":        {request{object: slice("node-a-b-0", "node-a", "node-a", "")}, naming},
		"a slice of another's name":              {request{object: slice("node-b-0", "node-a", "node-a", "")}, naming},
		"a slice named as the node":              {request{object: slice("node-a", "node-a", "node-a", "")}, naming},
		"the last slice that a node may have":    {request{object: slice("node-a-99", "node-a", "node-a", "")}, ""},
		"a slice more than a node may have":      {request{object: slice("node-a-100", "node-a", "node-a", "")}, naming},
		"a suffix that is no number":             {request{object: slice("node-a-x", "node-a", "node-a", "")}, naming},
		"a number in another form":               {request{object: slice("node-a-00", "node-a", "node-a", "")}, naming},
		"a suffix with a dot":                    {request{object: slice("node-a-0.x", "node-a", "node-a", "")}, naming},
		"a device without properties":            {request{object: filled(1, 0, 0)}, ""},
		"as large as a slice may be":             {request{object: filled(256, 8, 124)}, ""},
		"a slice that is too large":              {request{object: filled(256, 8, 125)}, large},
		"one device that is too large":           {request{object: filled(1, 2, 32<<10)}, largeDevice},
		"a device of many bytes a character":     {request{object: strings.Replace(filled(1, 1, 1), ": x", ": "+strings.Repeat("世", 22<<10), 1)}, largeDevice},
		"as many properties as a slice may have": {request{object: filled(256, 32, 1)}, ""},
		"too many small properties":              {request{object: filled(256, 33, 1)}, many},
		"no more properties than before":         {request{object: filled(256, 33, 1), old: filled(256, 33, 2)}, ""},
		"more properties than before":            {request{object: filled(256, 34, 1), old: filled(256, 33, 1)}, many},
		"owned by another":                       {request{object: slice("node-a-0", "node-a", "node-b", "")}, owner},
		"owned by nobody":                        {request{object: "metadata: {name: node-a-0}\nspec: {nodeName: node-a}"}, owner},
		"owned by a pod":                         {request{object: strings.Replace(slice("node-a-0", "node-a", "node-a", ""), "Node", "Pod", 1)}, owner},
		"owned by a Node of another API":         {request{object: strings.Replace(slice("node-a-0", "node-a", "node-a", ""), "v1", "x.io/v1", 1)}, owner},
		"a kubecri's name, as a kubelet":         {request{by: &user.DefaultInfo{Name: "system:kubecri:node-a", Groups: []string{"system:nodes"}}, object: slice("node-a-0", "node-a", "node-a", "")}, "token"},
		"an owner of a long UID":                 {request{object: strings.Replace(slice("node-a-0", "node-a", "node-a", ""), "uid: u", "uid: "+strings.Repeat("u", 129), 1)}, owner},
		"two owners":                             {request{object: strings.Replace(slice("node-a-0", "node-a", "node-a", ""), "[", "[{apiVersion: v1, kind: Node, name: node-a, uid: v}, ", 1)}, owner},
		"a controller owner":                     {request{object: strings.Replace(slice("node-a-0", "node-a", "node-a", ""), "uid: u", "uid: u, controller: true", 1)}, owner},
		"an owner that blocks":                   {request{object: strings.Replace(slice("node-a-0", "node-a", "node-a", ""), "uid: u", "uid: u, blockOwnerDeletion: true", 1)}, owner},
		"finalizers":                             {request{object: slice("node-a-0", "node-a", "node-a", ", finalizers: [a/b]")}, metadata},
		"finalizers, added":                      {request{object: slice("node-a-0", "node-a", "node-a", ", finalizers: [a/b]"), old: slice("node-a-0", "node-a", "node-a", "")}, metadata},
		"annotations":                            {request{object: slice("node-a-0", "node-a", "node-a", ", annotations: {a: b}")}, metadata},
		"annotations, changed":                   {request{object: slice("node-a-0", "node-a", "node-a", ", annotations: {a: c}"), old: slice("node-a-0", "node-a", "node-a", ", annotations: {a: b}")}, metadata},
		"a pod on a slice":                       {request{object: slice("node-a-0", "node-a", "node-a", ", annotations: {kubeslot.io/pod: ns/p}")}, metadata},
		"a pod of a long name":                   {request{resource: claimsResource, object: written("cam-abcdef-0", "node-a", "node-a", ", annotations: {kubeslot.io/pod: "+strings.Repeat("p", 318)+"}")}, metadata},
		"labels":                                 {request{object: slice("node-a-0", "node-a", "node-a", ", labels: {a: b}")}, metadata},
		"labels of claims":                       {request{object: slice("node-a-0", "node-a", "node-a", ", labels: {kubeslot.io/configuration: b}")}, metadata},
		"generateName":                           {request{object: slice("node-a-0", "node-a", "node-a", ", generateName: node-a-")}, metadata},
		"a claim with finalizers, with a token":  {request{by: account("kubeslot-system", "kubecri", "node-a"), resource: claimsResource, object: written("cam-abcdef-0", "node-a", "node-a", ", finalizers: [a/b]")}, metadata},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.request
			if r.by == nil {
				r.by = kubecri("node-a")
			}
			if r.kind = "SlotClaim"; r.resource.Empty() {
				r.resource, r.kind = slicesResource, "DeviceSlice"
			}
			expect(t, p, r, tc.want)
		})
	}
}

// expect checks the refusal, of which want is a part; "" for none.
func expect(t *testing.T, p *policy, r request, want string) {
	t.Helper()
	if got := p.refusal(t, r); (got == "") != (want == "") || !strings.Contains(got, want) || strings.HasPrefix(got, "ERROR") {
		t.Errorf("refusal %q, want %q", got, want)
	}
}

func TestKubecriWritesItsOwnNodesTotals(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-node"]
	const before = `{metadata: {name: node-a, labels: {l: v}, annotations: {theirs: x}}, spec: {podCIDR: c},
 status: {capacity: {cpu: "4", akri.sh/cam: "2", akri.sh/cam-8120fe: "2"}, allocatable: {cpu: "4", akri.sh/cam: "2"}, conditions: [{type: Ready, status: "True"}]}}`
	const (
		resources = "may change only its annotations and resources"
		status    = "only the capacity, the allocatable and the conditions kubeslot.io/* of a node's status"
		labels    = "may list at most 32 labels"
	)
	for name, tc := range map[string]struct{ from, to, want string }{
		"totals":                      {`cam: "2", akri.sh/cam-8120fe: "2"`, `cam: "3"`, ""},
		"a total gone":                {`, akri.sh/cam: "2", akri.sh/cam-8120fe: "2"`, ``, ""},
		"allocatable":                 {`allocatable: {cpu: "4", akri.sh/cam: "2"`, `allocatable: {cpu: "4", akri.sh/other: "1"`, ""},
		"its annotation":              {`theirs: x`, `theirs: x, KubeDevice/DeviceInfo: "{}"`, ""},
		"another annotation":          {`theirs: x`, `theirs: "y"`, "may change only the annotations"},
		"an annotation gone":          {`theirs: x`, ``, "may change only the annotations"},
		"labels":                      {`l: v`, `l: w`, resources},
		"its mode":                    {`l: v`, `l: v, kubeslot.io/mode: device-plugin`, ""},
		"another label":               {`l: v`, `l: v, kubeslot.io/other: x`, resources},
		"a label gone":                {`labels: {l: v}, `, ``, resources},
		"plugins' labels":             {`l: v}, annotations: {`, `l: v, nvidia.com/gpu.count: "8", gpu.kubeslot.io/count: "8"}, annotations: {kubeslot.io/plugin-labels: "gpu.kubeslot.io/count,nvidia.com/gpu.count", `, ""},
		"a label that is not listed":  {`l: v}, annotations: {`, `l: v, nvidia.com/gpu.count: "8", gpu.kubeslot.io/count: "8"}, annotations: {kubeslot.io/plugin-labels: gpu.kubeslot.io/count, `, resources},
		"a label of others, listed":   {`theirs: x`, `theirs: x, kubeslot.io/plugin-labels: l`, labels},
		"another's prefix":            {`theirs: x`, `theirs: x, kubeslot.io/plugin-labels: x.nvidia.com/gpu`, labels},
		"the mode as a plugin's":      {`theirs: x`, `theirs: x, kubeslot.io/plugin-labels: kubeslot.io/mode`, labels},
		"spec":                        {`podCIDR: c`, `podCIDR: c, unschedulable: true`, resources},
		"owners":                      {`name: node-a`, `name: node-a, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: c, uid: u}]`, resources},
		"finalizers":                  {`name: node-a`, `name: node-a, finalizers: [a/b]`, resources},
		"cpu":                         {`capacity: {cpu: "4"`, `capacity: {cpu: "5"`, "may advertise only akri.sh resources"},
		"cpu gone":                    {`allocatable: {cpu: "4", `, `allocatable: {`, "may advertise only akri.sh resources"},
		"conditions":                  {`status: "True"`, `status: "False"`, status},
		"a condition of ours":         {`conditions: [`, `conditions: [{type: kubeslot.io/X, status: "True"}, `, ""},
		"addresses":                   {`conditions:`, `addresses: [{type: InternalIP, address: 10.0.0.1}], conditions:`, status},
		"volumes":                     {`conditions:`, `volumesInUse: [v], conditions:`, status},
		"images":                      {`conditions:`, `images: [{names: [i]}], conditions:`, status},
		"plugins' resources":          {`theirs: x`, `theirs: x, kubeslot.io/plugin-resources: a.b/c`, ""},
		"its NRI plugin":              {`theirs: x`, `theirs: x, kubeslot.io/nri-plugin: kubecri`, ""},
		"all its annotations at once": {`theirs: x`, `theirs: x, KubeDevice/DeviceInfo: "{}", kubeslot.io/plugin-resources: a.b/c, kubeslot.io/plugin-labels: nvidia.com/a, kubeslot.io/nri-plugin: kubecri, kubeslot.io/kubecri-namespace: kubeslot-system`, ""},
		"resources of others":         {`theirs: x`, `theirs: x, kubeslot.io/plugin-resources: akri.sh/cam`, "may not take over resources"},
		"resources of the kubelet's":  {`theirs: x`, `theirs: x, kubeslot.io/plugin-resources: cpu`, "may list only extended resources"},
	} {
		t.Run(name, func(t *testing.T) {
			after := strings.Replace(before, tc.from, tc.to, 1)
			if after == before {
				t.Fatalf("nothing to replace: %s", tc.from)
			}
			r := request{by: kubecri("node-a"), resource: nodesResource, kind: "Node", subresource: "status", object: after, old: before}
			expect(t, p, r, tc.want)
			r.by = account("kubeslot-system", "kubecri", "node-a")
			expect(t, p, r, tc.want)
			if r.by = kubecri("node-b"); tc.want == "" {
				expect(t, p, r, "may change only its own node")
			}
			r.by = kubelet("node-a")
			expect(t, p, r, "")
		})
	}
}

// Of the labels that it may write kubecri changes those alone that it wrote before.
func TestKubecriLeavesOthersLabels(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-node"]
	node := func(labels, listed string) string {
		return fmt.Sprintf("{metadata: {name: node-a, labels: {%s}, annotations: {kubeslot.io/plugin-labels: '%s'}}, "+
			"spec: {}, status: {}}", labels, listed)
	}
	const ours, theirs, listed = "gpu.kubeslot.io/a: x", ", nvidia.com/b: x", "gpu.kubeslot.io/a"
	const take, change = "none that the node has from others", "may change only its annotations and resources"
	for name, tc := range map[string]struct{ labels, listed, want string }{
		"ours, changed":              {"gpu.kubeslot.io/a: 'y'" + theirs, listed, ""},
		"ours, gone":                 {theirs[2:], "", ""},
		"ours, given up":             {ours + theirs, "", ""},
		"another of ours":            {ours + theirs + ", gpu.kubeslot.io/c: x", listed + ",gpu.kubeslot.io/c", ""},
		"theirs, changed":            {ours + ", nvidia.com/b: 'y'", listed, change},
		"theirs, gone":               {ours, listed, change},
		"theirs, listed":             {ours + theirs, listed + ",nvidia.com/b", take},
		"theirs, listed and changed": {ours + ", nvidia.com/b: 'y'", listed + ",nvidia.com/b", take},
		"theirs, listed and gone":    {ours, listed + ",nvidia.com/b", take},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, p, request{by: kubecri("node-a"), resource: nodesResource, kind: "Node", subresource: "status",
				object: node(tc.labels, tc.listed), old: node(ours+theirs, listed)}, tc.want)
		})
	}
}

func TestKubecriWritesDiscoveryLeasesInItsOwnName(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-leases"]
	lease := func(name, holder, more string) string {
		return fmt.Sprintf("metadata: {name: %s, namespace: default, ownerReferences: [{apiVersion: akri.sh/v0, kind: Configuration, name: cam, uid: u}]%s}\nspec: {holderIdentity: %q}", name, more, holder)
	}
	const taken = "kubeslot-discovery-cam-0"
	node := func(name, holder, more string) string { // the Lease by which the controller knows that kubecri is there
		return fmt.Sprintf("metadata: {name: %s, namespace: kube-node-lease, ownerReferences: [{apiVersion: v1, kind: Node, name: node-a, uid: u}]%s}\nspec: {holderIdentity: %q}", name, more, holder)
	}
	nodes := func(from, to string) string {
		return strings.Replace(node("kubecri.node-a", "node-a", ""), from, to, 1)
	}
	own := func(from, to string) string {
		object := strings.Replace(lease(taken, "node-a", ""), from, to, 1)
		if object == lease(taken, "node-a", "") {
			t.Fatalf("nothing to replace: %s", from)
		}
		return object
	}
	const (
		which = "only Leases whose names begin with kubeslot-discovery-, and kubecri.<node> in kube-node-lease"
		whose = "may only make its own node the holder"
		form  = "have that Configuration as its one owner"
		owned = "must have its own Node as the one owner"
	)
	for name, tc := range map[string]struct {
		by          *user.DefaultInfo
		object, old string
		want        string
	}{
		"taken":                      {nil, lease("kubeslot-discovery-cam-0", "node-a", ", labels: {kubeslot.io/discovery: cam}"), "", ""},
		"renewed":                    {nil, lease("kubeslot-discovery-cam-0", "node-a", ""), lease("kubeslot-discovery-cam-0", "node-a", ""), ""},
		"taken over":                 {nil, lease("kubeslot-discovery-cam-0", "node-a", ""), lease("kubeslot-discovery-cam-0", "node-b", ""), ""},
		"given up":                   {nil, lease("kubeslot-discovery-cam-0", "", ""), lease("kubeslot-discovery-cam-0", "node-a", ""), ""},
		"with a pod's token":         {account("kubeslot-system", "kubecri", "node-a"), lease("kubeslot-discovery-cam-0", "node-a", ""), "", ""},
		"the kubelet's":              {kubelet("node-a"), lease("node-a", "node-a", ""), lease("node-a", "node-a", ""), ""},
		"the controller's":           {account("kubeslot-system", "kubeslot-controller", "node-a"), lease("kubeslot-controller", "x", ""), "", ""},
		"the scheduler's":            {account("kubeslot-system", "kube-scheduler", "node-a"), lease("kube-scheduler", "x", ""), "", ""},
		"in another's name":          {nil, lease("kubeslot-discovery-cam-0", "node-b", ""), "", whose},
		"another's, given up":        {nil, lease("kubeslot-discovery-cam-0", "", ""), lease("kubeslot-discovery-cam-0", "node-b", ""), whose},
		"of nobody":                  {nil, lease("kubeslot-discovery-cam-0", "", ""), "", whose},
		"with a token of no pod":     {account("kubeslot-system", "kubecri", ""), lease("kubeslot-discovery-cam-0", "", ""), "", whose},
		"the scheduler's, by a node": {nil, lease("kube-scheduler", "node-a", ""), lease("kube-scheduler", "s", ""), which},
		"with finalizers":            {nil, lease("kubeslot-discovery-cam-0", "node-a", ", finalizers: [a/b]"), "", which},
		"deleted":                    {nil, "", lease("kubeslot-discovery-cam-0", "node-a", ""), which},
		"the last":                   {nil, lease("kubeslot-discovery-cam-99", "node-a", ""), "", ""},
		"others' annotations stay":   {nil, lease(taken, "node-a", ", annotations: {a: b}"), lease(taken, "node-a", ", annotations: {a: b}"), ""},
		"one more than there may be": {nil, lease("kubeslot-discovery-cam-100", "node-a", ""), "", form},
		"of another Configuration":   {nil, lease("kubeslot-discovery-lights-0", "node-a", ""), "", form},
		"of no number":               {nil, lease("kubeslot-discovery-cam-x", "node-a", ""), "", form},
		"another label":              {nil, lease(taken, "node-a", ", labels: {a: b}"), "", form},
		"another's label":            {nil, lease(taken, "node-a", ", labels: {kubeslot.io/discovery: lights}"), "", form},
		"an annotation":              {nil, lease(taken, "node-a", ", annotations: {a: b}"), "", form},
		"an annotation, added":       {nil, lease(taken, "node-a", ", annotations: {a: b}"), lease(taken, "node-a", ""), form},
		"without an owner":           {nil, own("{apiVersion: akri.sh/v0, kind: Configuration, name: cam, uid: u}", ""), "", form},
		"owned by a pod":             {nil, own("kind: Configuration", "kind: Pod"), "", form},
		"owned by another API's":     {nil, own("akri.sh/v0", "v1"), "", form},
		"two owners":                 {nil, own("[", "[{apiVersion: akri.sh/v0, kind: Configuration, name: cam, uid: v}, "), "", form},
		"an owner that blocks":       {nil, own("uid: u", "uid: u, blockOwnerDeletion: true"), "", form},
		"an owner that controls":     {nil, own("uid: u", "uid: u, controller: true"), "", form},
		"generateName":               {nil, lease(taken, "node-a", ", generateName: kubeslot-"), "", form},

		"the node's":                           {nil, node("kubecri.node-a", "node-a", ""), "", ""},
		"the node's, renewed":                  {nil, node("kubecri.node-a", "node-a", ""), node("kubecri.node-a", "node-a", ""), ""},
		"the node's, others' labels stay":      {nil, node("kubecri.node-a", "node-a", ", labels: {a: b}"), node("kubecri.node-a", "node-a", ", labels: {a: b}"), ""},
		"the node's, by a pod":                 {account("kubeslot-system", "kubecri", "node-a"), node("kubecri.node-a", "node-a", ""), "", ""},
		"another node's":                       {nil, node("kubecri.node-b", "node-a", ""), "", which},
		"another node's, renewed":              {nil, node("kubecri.node-b", "node-a", ""), node("kubecri.node-b", "node-b", ""), which},
		"of a kubelet whose node is called so": {nil, node("kubecri.node-a", "node-a", ""), node("kubecri.node-a", "kubecri.node-a", ""), which},
		"the node's, elsewhere":                {nil, nodes("kube-node-lease", "default"), "", which},
		"the node's, of another holder":        {nil, node("kubecri.node-a", "node-b", ""), "", which},
		"the node's, deleted":                  {nil, "", node("kubecri.node-a", "node-a", ""), which},
		"the node's, with a label":             {nil, node("kubecri.node-a", "node-a", ", labels: {a: b}"), "", owned},
		"the node's, with generateName":        {nil, node("kubecri.node-a", "node-a", ", generateName: x"), "", owned},
		"the node's, owned by another":         {nil, nodes("name: node-a, uid", "name: node-b, uid"), "", owned},
		"the node's, that blocks":              {nil, nodes("uid: u", "uid: u, blockOwnerDeletion: true"), "", owned},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.by == nil {
				tc.by = kubecri("node-a")
			}
			expect(t, p, request{by: tc.by, resource: leasesResource, kind: "Lease", object: tc.object, old: tc.old}, tc.want)
		})
	}
}

func TestSchedulersClaimsGoWithTheirNodes(t *testing.T) {
	p := policies(t, "scheduler-claims/policy.yaml")["kubeslot-scheduler-claims"]
	const refused = "only SlotClaims that the Node of their spec.nodeName alone owns"
	for name, tc := range map[string]struct{ object, want string }{
		"owned by its node":  {written("cam-abcdef-0", "node-a", "node-a", ""), ""},
		"owned by another":   {written("cam-abcdef-0", "node-a", "node-b", ""), refused},
		"owned by nobody":    {"metadata: {name: cam-abcdef-0}\nspec: {nodeName: node-a}", refused},
		"with finalizers":    {written("cam-abcdef-0", "node-a", "node-a", ", finalizers: [a/b]"), refused},
		"owned by two nodes": {strings.Replace(written("cam-abcdef-0", "node-a", "node-a", ""), "[", "[{apiVersion: v1, kind: Node, name: node-a, uid: v}, ", 1), refused},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []*user.DefaultInfo{{Name: "system:kube-scheduler"}, account("kubeslot-system", "kube-scheduler", "node-c")} {
				expect(t, p, request{by: by, resource: claimsResource, kind: "SlotClaim", object: tc.object}, tc.want)
			}
		})
	}
}

// Whoever deletes a Configuration is warned of slots that are in use.
func TestDeletingAConfigurationInUse(t *testing.T) {
	p := policies(t, "policies/configurations.yaml")["kubeslot-configuration-in-use"]
	resource := schema.GroupVersionResource{Group: "akri.sh", Version: "v0", Resource: "configurations"}
	for status, want := range map[string]string{
		"":                                     "",
		"status: {instances: 2}":               "",
		"status: {slots: {total: 4}}":          "",
		"status: {slots: {total: 4, held: 0}}": "",
		"status: {slots: {total: 4, held: 3}}": "Configuration loops is deleted while 3 of its slots are in use: pods keep them",
	} {
		expect(t, p, request{by: &user.DefaultInfo{Name: "anna"}, resource: resource, kind: "Configuration", old: "metadata: {name: loops}\n" + status}, want)
	}
}

// Whoever deletes a claim that is not a node's own says that its container is gone.
func TestReleaseHasAVerbOfItsOwn(t *testing.T) {
	p := policies(t, "policies/release.yaml")["kubeslot-release"]
	const claim = "metadata: {name: cam-8120fe-0}\nspec: {nodeName: node-a}"
	for name, tc := range map[string]struct {
		by   *user.DefaultInfo
		may  rights
		want string
	}{
		"with the verb":         {&user.DefaultInfo{Name: "anna"}, rights{"release slotclaims.kubeslot.io "}, ""},
		"without":               {&user.DefaultInfo{Name: "anna"}, rights{"delete slotclaims.kubeslot.io "}, "kubectl kubeslot release"},
		"the node, by its own":  {kubecri("node-a"), nil, ""},
		"the kubelet":           {kubelet("node-a"), nil, ""},
		"a pod of kubecri":      {account("kubeslot-system", "kubecri", "node-a"), nil, ""},
		"another's pod":         {account("default", "kubecri", "node-a"), nil, "kubectl kubeslot release"},
		"the garbage collector": {account("kube-system", "generic-garbage-collector", ""), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, p, request{by: tc.by, resource: claimsResource, kind: "SlotClaim", old: claim, may: tc.may}, tc.want)
			expect(t, p, request{by: tc.by, resource: claimsResource, kind: "SlotClaim", old: claim, may: tc.may, collection: true}, tc.want)
		})
	}
}
