package view

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Each line says what to do, and none is there twice.
func TestExamineSaysWhatToDo(t *testing.T) {
	const away = "no node sees the device; the Instance stays while its slots are claimed"
	back := away + ". Bring the device back, or end the pods that have its slots: kubectl kubeslot slots " +
		"-n default " + yard
	onNode := func(reason, message string) func(*Objects) {
		return func(o *Objects) {
			ref := &v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}
			o.Slices[0].Spec.Problems = []v1alpha1.Problem{{Configuration: ref, Reason: reason, Message: message}}
			o.Configurations[0].Status.Problems = []akriv0.ConfigurationProblem{{Node: "a", Reason: reason, Message: message}}
		}
	}
	inStatus := func(reason, message string) func(*Objects) {
		return func(o *Objects) {
			o.Configurations[0].Status.Problems = []akriv0.ConfigurationProblem{{Reason: reason, Message: message}}
		}
	}
	ofInstance := func(problem string) func(*Objects) {
		return func(o *Objects) { o.Instances[0].Status.Problems = []string{problem} }
	}
	younger := func(status ...akriv0.ConfigurationProblem) func(*Objects) {
		return func(o *Objects) {
			c := *o.Configurations[0].DeepCopy()
			c.Namespace, c.UID, c.CreationTimestamp, c.Status.Problems = "other", "d", metav1.NewTime(now), status
			o.Configurations = append(o.Configurations, c)
		}
	}
	for name, tc := range map[string]struct {
		change func(*Objects)
		want   string // problems, a line each
	}{
		"a handler that there is not": {onNode("UnknownHandler", `no discovery handler "x" on this node: run it there, and discovery starts; did you mean "y"?`),
			`node a: UnknownHandler: no discovery handler "x" on this node: run it there, and discovery starts; did you mean "y"?`},
		"a handler that fails": {onNode("DiscoveryFailed", "no route"), "node a: DiscoveryFailed: no route. It is tried again; if it stays, look at the handler's pod or log on the node"},
		"properties that no container gets": {inStatus("PropertiesWithheld", "no container gets these"),
			"PropertiesWithheld: no container gets these. Add the beginnings of the names to spec.propertyPrefixes, or read them by the names that containers have"},
		"a reason that says it":     {inStatus("BrokerNameTaken", "rename or delete it"), "BrokerNameTaken: rename or delete it"},
		"a reason of a newer part":  {inStatus("Newer", "x…"), "Newer: x… See kubectl describe configuration -n default cam"},
		"a name that is taken":      {younger(), "the Configuration of this name in namespace default is older and has the name. Rename one of them"},
		"a name that both say":      {younger(akriv0.ConfigurationProblem{Reason: "NameTaken", Message: "Configuration default/cam is older: rename one"}), "NameTaken: Configuration default/cam is older: rename one"},
		"a device that nobody sees": {ofInstance(away), back},
		"a claim that does not count": {ofInstance("the claim of slot x by node y does not count: z"),
			"the claim of slot x by node y does not count: z. The controller deletes such claims unless a pod has the slot: delete that pod, else look whether the controller runs"},
		"a report that does not count": {ofInstance("two devices"), "two devices. See kubectl describe instance -n default " + yard + ", and look at the discovery handler of the node that reports it"},
		"a node's problem in each of its slices": {func(o *Objects) {
			second := *o.Slices[0].DeepCopy()
			second.Name = "a-1"
			o.Slices = append(o.Slices, second)
			for _, i := range []int{0, 2} {
				o.Slices[i].Spec.Problems = []v1alpha1.Problem{{Reason: "MoreProblems", Message: "3 more problems are in kubecri's log"}}
			}
		}, "3 more problems are in kubecri's log"},
		"a file of a plugin": {func(o *Objects) {
			o.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: "kubeslot.io/DevicePluginsNotLoaded", Status: corev1.ConditionTrue, Reason: "Refused", Message: "x.so"}}
		}, "x.so. Correct the file, and restart kubecri there: `kubecri plugin check FILE` on the node says what is wrong with it"},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster()
			tc.change(&o)
			var got []string
			for _, f := range New(o).Examine(now) {
				got = append(got, f.Problem)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
