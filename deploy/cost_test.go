package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/kubeslot/kubeslot/kubecri/advertise"
	"github.com/kubeslot/kubeslot/kubecri/soplugins/nodeinfo"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// affords reports whether the policy's expressions cost no more for the request, in CEL's
// units. A million is about 0.1 s of the API server's time.
func (p *policy) affords(t *testing.T, r request, cost int64) bool {
	t.Helper()
	return !slices.ContainsFunc(p.decide(t, r, cost), func(d validating.PolicyDecision) bool { return d.Evaluation == validating.EvalError })
}

// nodeOf is a Node with so many akri.sh resources, and what is further in its metadata and
// its status.
func nodeOf(resources int, metadata, status string) string {
	var list strings.Builder
	for i := range resources {
		fmt.Fprintf(&list, "akri.sh/cam-%d: '1', ", i)
	}
	return fmt.Sprintf("{metadata: {name: node-a%s}, spec: {}, status: {capacity: {%s}, allocatable: {%[2]s}%s}}", metadata, list.String(), status)
}

// named is a Node with a resource of such a long name.
func named(size int) string {
	return fmt.Sprintf("{metadata: {name: node-a}, spec: {}, status: {capacity: {akri.sh/%s: '1'}}}", strings.Repeat("x", size))
}

// annotated is the metadata of a Node with an annotation.
func annotated(key, value string) string { return fmt.Sprintf(", annotations: {%s: '%s'}", key, value) }

// listing is that of a Node with so many resources of device plugins.
func listing(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("example.com/r%d", i))
	}
	return annotated(v1alpha1.PluginResourcesAnnotation, strings.Join(names, ","))
}

// labelled is the metadata of a Node with so many labels of device plugins.
func labelled(n int) string {
	var labels, names []string
	for i := range n {
		name := fmt.Sprintf("nvidia.com/l%d", i)
		labels, names = append(labels, name+": x"), append(names, name)
	}
	return fmt.Sprintf(", labels: {%s}%s", strings.Join(labels, ", "),
		annotated(v1alpha1.PluginLabelsAnnotation, strings.Join(names, ",")))
}

// conditionsOf are so many conditions of kubecri's, with messages of so many characters.
func conditionsOf(n, size int) string {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "{type: kubeslot.io/C%d, status: 'True', message: %s}, ", i, strings.Repeat("x", size))
	}
	return ", conditions: [" + list.String() + "]"
}

// What kubecri may write of its own node is bounded, and what is much larger is refused
// before it costs the API server anything.
func TestKubecriAdvertisesLittle(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-node"]
	const size, many, listed, conditions = "a node of at most 512 resources", "at most 256 akri.sh resources", "list at most 100 resources", "at most 8 conditions"
	for name, tc := range map[string]struct {
		object, old string // without old, a Node with nothing
		want        string
		cost        int64 // at most
	}{
		"one resource":          {nodeOf(1, "", ""), "", "", 1000},
		"as many as there may":  {nodeOf(advertise.MaxSlotResources, "", ""), "", "", 10_000},
		"the same again":        {nodeOf(advertise.MaxSlotResources, "", ""), nodeOf(advertise.MaxSlotResources, "", ""), "", 20_000},
		"one more":              {nodeOf(advertise.MaxSlotResources+1, "", ""), "", many, 20_000},
		"2,000":                 {nodeOf(2000, "", ""), "", size, 1000},
		"20,000":                {nodeOf(20_000, "", ""), "", size, 1000},
		"fewer than there were": {nodeOf(257, "", ""), nodeOf(300, "", ""), "", 50_000},
		"a long name":           {named(63), "", "", 1000},
		"a longer name":         {named(64), "", "at most 63 characters behind the slash", 1000},

		"resources of device plugins": {nodeOf(0, listing(advertise.MaxPluginResources), ""), "", "", 20_000},
		"the same resources again": {nodeOf(0, listing(advertise.MaxPluginResources), ""),
			nodeOf(0, listing(advertise.MaxPluginResources), ""), "", 40_000},
		"one more of device plugins": {nodeOf(0, listing(advertise.MaxPluginResources+1), ""), "", listed, 20_000},
		"1,500 of device plugins":    {nodeOf(0, listing(1500), ""), "", listed, 150_000},
		"2,000 of device plugins":    {nodeOf(0, listing(2000), ""), "", size, 10_000},
		"a long name of a device plugin's": {nodeOf(0, annotated(v1alpha1.PluginResourcesAnnotation,
			"example.com/"+strings.Repeat("x", 310)), ""), "", listed, 20_000},

		"labels of device plugins": {nodeOf(0, labelled(nodeinfo.MaxLabels), ""), "", "", 20_000},
		"the same labels again": {nodeOf(0, labelled(nodeinfo.MaxLabels), ""),
			nodeOf(0, labelled(nodeinfo.MaxLabels), ""), "", 20_000},
		"one label more": {nodeOf(0, labelled(nodeinfo.MaxLabels+1), ""), "", "at most 32 labels", 20_000},
		"labels of very long names": {nodeOf(0,
			annotated(v1alpha1.PluginLabelsAnnotation, strings.Repeat("nvidia.com/x,", 320)), ""), "", size, 20_000},
		"labels on a Node with 1,000": {nodeOf(0,
			strings.Replace(labelled(nodeinfo.MaxLabels), "labels: {", "labels: {"+keys(1000)+", ", 1), ""),
			nodeOf(0, ", labels: {"+keys(1000)+"}", ""), "", 50_000},

		"what device plugins say":   {nodeOf(0, annotated(assignment.Annotation, strings.Repeat("x", advertise.MaxDeviceInfo)), ""), "", "", 50_000},
		"more of it":                {nodeOf(0, annotated(assignment.Annotation, strings.Repeat("x", advertise.MaxDeviceInfo+1)), ""), "", size, 50_000},
		"as much as there was":      {nodeOf(0, annotated(assignment.Annotation, strings.Repeat("x", 200<<10)), ""), nodeOf(0, annotated(assignment.Annotation, strings.Repeat("y", 200<<10)), ""), "", 200_000},
		"conditions":                {nodeOf(0, "", conditionsOf(8, 1024)), "", "", 20_000},
		"one condition more":        {nodeOf(0, "", conditionsOf(9, 1)), "", conditions, 20_000},
		"a longer message":          {nodeOf(0, "", conditionsOf(1, 1025)), "", conditions, 20_000},
		"a long message that was":   {nodeOf(1, "", conditionsOf(1, 1025)), nodeOf(0, "", conditionsOf(1, 1025)), "", 20_000},
		"very many conditions":      {nodeOf(0, "", conditionsOf(5000, 1)), "", size, 1000},
		"very many labels":          {nodeOf(0, ", labels: {"+keys(5000)+"}", ""), "", size, 1000},
		"very many annotations too": {nodeOf(0, ", annotations: {"+keys(5000)+"}", ""), "", size, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.old == "" {
				tc.old = nodeOf(0, "", "")
			}
			r := request{by: kubecri("node-a"), resource: nodesResource, kind: "Node", subresource: "status", object: tc.object, old: tc.old}
			expect(t, p, r, tc.want)
			if !p.affords(t, r, tc.cost) {
				t.Errorf("costs more than %d", tc.cost)
			}
		})
	}
}

// A slice with more properties than it may have is refused by their number, before anything
// looks at each.
func TestDeviceSlicesCostLittle(t *testing.T) {
	p := policies(t, "policies/kubecri.yaml")["kubeslot-kubecri-objects"]
	for _, tc := range []struct {
		properties int // of each device
		want       string
		cost       int64 // at most
	}{{1, "", 20_000}, {32, "", 200_000}, {33, "at most 8192 properties", 15_000}, {256, "at most 8192 properties", 15_000}} {
		device := "{configuration: {namespace: default, name: cam}, id: d, hash: '000000', properties: {" + keys(tc.properties) + "}}, "
		r := request{by: kubecri("node-a"), resource: slicesResource, kind: "DeviceSlice",
			object: strings.TrimSuffix(written("node-a-0", "node-a", "node-a", ""), "}") + ", devices: [" + strings.Repeat(device, 256) + "]}"}
		expect(t, p, r, tc.want)
		if !p.affords(t, r, tc.cost) {
			t.Errorf("256 devices of %d properties cost more than %d", tc.properties, tc.cost)
		}
	}
}

// keys are so many entries of a map.
func keys(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("k%d: v", i))
	}
	return strings.Join(all, ", ")
}
