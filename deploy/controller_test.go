package deploy

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ofOwner is an object of an Instance or a Configuration, as the controller creates it.
func ofOwner(kind, name, labels string) string {
	owner := fmt.Sprintf("{apiVersion: akri.sh/v0, kind: %s, name: %s, uid: u, controller: true}", kind, name)
	return "metadata: {namespace: yard, name: it, labels: {controller: akri.sh, " + labels + "}, " +
		"ownerReferences: [" + owner + "]}\nspec: {}"
}

// The controller writes and deletes what belongs to an Instance or a Configuration, and nothing of others.
func TestTheControllerWritesOnlyWhatItsObjectsOwn(t *testing.T) {
	p := policies(t, "policies/controller.yaml")["kubeslot-controller"]
	resources := map[string]schema.GroupVersionResource{
		"Pod":                   {Version: "v1", Resource: "pods"},
		"Service":               {Version: "v1", Resource: "services"},
		"Job":                   {Group: "batch", Version: "v1", Resource: "jobs"},
		"ResourceClaimTemplate": {Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaimtemplates"},
	}
	const (
		labels     = "akri.sh/configuration: cam, akri.sh/instance: cam-8120fe"
		unowned    = " yard/it: the controller may write and delete only what has an Instance"
		unlabelled = "its labels must be controller=akri.sh and the name of its owner"
		taken      = "the controller may not change ownerReferences"
		bound      = "spec.nodeName must be empty"
	)
	broker := ofOwner("Instance", "cam-8120fe", labels)
	ofConfiguration := ofOwner("Configuration", "cam", "akri.sh/configuration: cam")
	with := func(old, new string) string { return strings.Replace(broker, old, new, 1) }
	running := with("spec: {}", "spec: {nodeName: a}")
	ofTwo := with("[{", "[{apiVersion: v1, kind: Node, name: a, uid: n}, {")
	unlabelledBroker := with("controller: akri.sh, ", "")
	users := "metadata: {namespace: yard, name: it}\nspec: {}"
	for name, tc := range map[string]struct{ kind, object, old, want string }{
		"a broker":                     {"Pod", broker, "", ""},
		"a Job":                        {"Job", broker, "", ""},
		"a template of claims":         {"ResourceClaimTemplate", broker, "", ""},
		"a Service of an Instance":     {"Service", with("akri.sh/configuration: cam, ", ""), "", ""},
		"a Service of a Configuration": {"Service", ofConfiguration, "", ""},

		"a pod of nobody":                        {"Pod", users, "", "Pod" + unowned},
		"a Job of nobody":                        {"Job", users, "", "Job" + unowned},
		"a Service of nobody":                    {"Service", users, "", "Service" + unowned},
		"a template of nobody":                   {"ResourceClaimTemplate", users, "", unowned},
		"a template of a Configuration":          {"ResourceClaimTemplate", ofConfiguration, "", unowned},
		"a pod of a Configuration":               {"Pod", ofConfiguration, "", "Pod" + unowned},
		"a Job of a Configuration":               {"Job", ofConfiguration, "", "Job" + unowned},
		"of an owner that is not the controller": {"Pod", with("controller: true", "controller: false"), "", unowned},
		"of another system's Instance":           {"Pod", with("akri.sh/v0", "example.com/v0"), "", unowned},
		"of a version that nobody looks up":      {"Pod", with("akri.sh/v0", "akri.sh/v9"), "", unowned},
		"of another owner too, that stays":       {"Pod", ofTwo, "", unowned},

		"a template without our label": {"ResourceClaimTemplate", unlabelledBroker, "", unlabelled},
		"without our label":            {"Pod", unlabelledBroker, "", unlabelled},
		"without the Instance's":       {"Pod", with(", akri.sh/instance: cam-8120fe", ""), "", unlabelled},
		"with another Instance's": {"Pod", with("akri.sh/instance: cam-8120fe", "akri.sh/instance: cam-f30c78"), "",
			unlabelled},
		"with another Configuration's": {"Pod", with("configuration: cam", "configuration: usb"), "", unlabelled},
		"a Service with another Configuration's": {"Service",
			ofOwner("Configuration", "cam", "akri.sh/configuration: usb"), "", unlabelled},
		"bound by the controller": {"Pod", running, "", bound},

		"to adopt Akri's": {"Pod", with("{namespace", "{annotations: {a: b}, namespace"), broker,
			""},
		"to change one that runs":            {"Pod", running, running, ""},
		"to change one that others own too":  {"Pod", ofTwo, ofTwo, ""},
		"to give back labels that were lost": {"Service", broker, unlabelledBroker, ""},
		"to take over":                       {"Pod", broker, users, taken},
		"to change a user's":                 {"Pod", users, users, unowned},
		"to take our label away":             {"Pod", unlabelledBroker, broker, unlabelled},

		"to delete a broker":                  {"Pod", "", running, ""},
		"to delete one that others own too":   {"Pod", "", ofTwo, ""},
		"to delete a Configuration's Service": {"Service", "", ofConfiguration, ""},
		"to delete a user's pod":              {"Pod", "", users, "Pod" + unowned},
		"to delete a user's Service":          {"Service", "", users, "Service" + unowned},
		"to delete what has not our label":    {"Pod", "", unlabelledBroker, unlabelled},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{resource: resources[tc.kind], kind: tc.kind, object: tc.object, old: tc.old}
			const name = "kubeslot-controller"
			inPod, others := account("kubeslot-system", name, "a"), account("default", name, "a")
			for _, r.by = range []*user.DefaultInfo{{Name: "system:kubeslot-controller"}, inPod} {
				expect(t, p, r, tc.want)
			}
			for _, r.by = range []*user.DefaultInfo{{Name: "anna"}, others} {
				expect(t, p, r, "")
			}
		})
	}
}

// Of a Configuration the controller takes finalizers off, and changes nothing that it says.
func TestTheControllerChangesNoConfiguration(t *testing.T) {
	p := policies(t, "policies/controller.yaml")["kubeslot-controller-configurations"]
	const (
		said = "metadata: {namespace: yard, name: cam, finalizers: [node-a, mine]}\n" +
			"spec: {capacity: 2, brokerSpec: {brokerPodSpec: {containers: [{name: b, image: i}]}}}"
		refused = "Configuration yard/cam: the controller may take finalizers off, and not change"
	)
	with := func(old, new string) string { return strings.Replace(said, old, new, 1) }
	for name, tc := range map[string]struct{ object, want string }{
		"a finalizer off":    {with("node-a, ", ""), ""},
		"all of them":        {with(", finalizers: [node-a, mine]", ""), ""},
		"another finalizer":  {with("mine", "theirs"), refused},
		"an owner":           {with("name: cam,", "name: cam, ownerReferences: [{kind: Node, name: a}],"), refused},
		"the capacity":       {with("capacity: 2", "capacity: 3"), refused},
		"the broker's image": {with("image: i", "image: evil"), refused},
		"no broker any longer": {with(", brokerSpec: {brokerPodSpec: {containers: [{name: b, image: i}]}}", ""),
			refused},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{kind: "Configuration", object: tc.object, old: said,
				resource: schema.GroupVersionResource{Group: "akri.sh", Version: "v0", Resource: "configurations"}}
			r.by = &user.DefaultInfo{Name: "system:kubeslot-controller"}
			expect(t, p, r, tc.want)
			r.by = &user.DefaultInfo{Name: "anna"}
			expect(t, p, r, "")
		})
	}
}

// Of DRA's objects the controller writes those of Kubeslot's driver, and takes none over.
func TestTheControllerWritesOnlyItsDriversObjects(t *testing.T) {
	p := policies(t, "policies/controller.yaml")["kubeslot-controller-dra"]
	of := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: resource}
	}
	resources := map[string]schema.GroupVersionResource{
		"ResourceSlice": of("resourceslices"), "DeviceClass": of("deviceclasses"),
	}
	const (
		driver = "only those of the driver slots.kubeslot.io"
		class  = "only <Configuration>.slots.kubeslot.io with the label"
		name   = "its extendedResourceName must be akri.sh/<Configuration>"

		ours   = "metadata: {name: it}\nspec: {driver: slots.kubeslot.io}"
		others = "metadata: {name: it}\nspec: {driver: gpu.example.com}"
		cam    = "metadata: {name: cam.slots.kubeslot.io, labels: {kubeslot.io/configuration: cam}}\nspec: {}"
		users  = "metadata: {name: cam.slots.kubeslot.io}\nspec: {}"
	)
	named := func(resource string) string {
		return strings.Replace(cam, "spec: {}", "spec: {extendedResourceName: "+resource+"}", 1)
	}
	for title, tc := range map[string]struct{ kind, object, old, want string }{
		"a slice":                      {"ResourceSlice", ours, "", ""},
		"to change a slice":            {"ResourceSlice", ours, ours, ""},
		"to delete a slice":            {"ResourceSlice", "", ours, ""},
		"another driver's slice":       {"ResourceSlice", others, "", driver},
		"to take over a slice":         {"ResourceSlice", ours, others, driver},
		"to delete another's slice":    {"ResourceSlice", "", others, driver},
		"a class":                      {"DeviceClass", cam, "", ""},
		"a class with a resource":      {"DeviceClass", named("akri.sh/cam"), "", ""},
		"to delete a class":            {"DeviceClass", "", named("akri.sh/cam"), ""},
		"another name":                 {"DeviceClass", strings.Replace(cam, "name: cam.", "name: usb.", 1), "", class},
		"no name of a Configuration":   {"DeviceClass", strings.Replace(cam, ".slots.kubeslot.io", "", 1), "", class},
		"to take over a class":         {"DeviceClass", cam, users, class},
		"to delete a user's class":     {"DeviceClass", "", users, class},
		"a class of another resource":  {"DeviceClass", named("example.com/gpu"), "", name},
		"a class of another's devices": {"DeviceClass", named("akri.sh/usb"), "", name},
	} {
		t.Run(title, func(t *testing.T) {
			r := request{resource: resources[tc.kind], kind: tc.kind, object: tc.object, old: tc.old}
			r.by = account("kubeslot-system", "kubeslot-controller", "a")
			expect(t, p, r, tc.want)
			r.by = &user.DefaultInfo{Name: "anna"}
			expect(t, p, r, "")
		})
	}
}

// A node publishes no devices of Kubeslot's driver: a kubelet may write slices that name its node.
func TestNodesPublishNoDevices(t *testing.T) {
	p := policies(t, "policies/dra.yaml")["kubeslot-resourceslices"]
	const refused = "by Kubeslot's controller alone"
	slices := schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}
	of := func(spec string) string { return "metadata: {name: it}\nspec: {" + spec + "}" }
	for spec, want := range map[string]string{
		"driver: slots.kubeslot.io, nodeName: a":    refused,
		"driver: gpu.example.com, nodeName: a":      "",
		"driver: slots.kubeslot.io, allNodes: true": "",
	} {
		for _, old := range []string{"", of("driver: gpu.example.com, nodeName: a")} {
			r := request{by: kubelet("a"), resource: slices, kind: "ResourceSlice", object: of(spec), old: old}
			expect(t, p, r, want)
		}
	}
}
