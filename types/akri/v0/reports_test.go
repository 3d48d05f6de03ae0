package v0

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whose report of a device may count, and what is said of the others.
func TestRefuses(t *testing.T) {
	own := &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cam"}}
	selecting := own.DeepCopy()
	selecting.Spec.Discovery = &Discovery{NodeSelector: map[string]string{"net": "1"}}
	older := &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "old", Name: "cam-8120fe"}}
	for name, test := range map[string]struct {
		of     *Configuration
		report Report
		want   string // "" if it may count
	}{
		"a local device": {
			own, Report{Namespace: "ns", HashDigits: 6}, ""},
		"a shared one": {
			own, Report{Namespace: "ns", HashDigits: 6, Shared: true}, ""},
		"for all selected nodes": {
			selecting, Report{Namespace: "ns", HashDigits: 6, Shared: true, Selected: true}, ""},
		"local where nodes speak for others": {
			selecting, Report{Namespace: "ns", HashDigits: 6, Selected: true}, "it is not shared"},
		"of a node that is not selected": {
			selecting, Report{Namespace: "ns", HashDigits: 6, Shared: true}, "does not select the node"},
		"without Configuration": {
			nil, Report{Namespace: "ns", HashDigits: 6}, "no such Configuration"},
		"for another namespace": {
			own, Report{Namespace: "other", HashDigits: 6}, "other/cam, but ns/cam has the name"},
		"with a longer hash": {
			own, Report{Namespace: "ns", HashDigits: 12}, "instanceNameDigits of its Configuration is 6"},
		"whose Instance is a Configuration": {
			own, Report{Namespace: "ns", HashDigits: 6, Namesake: older}, "Configuration old/cam-8120fe is older"},
	} {
		err := test.of.Refuses(test.report)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// An empty selector selects all nodes, and each label that one names is needed.
func TestSelects(t *testing.T) {
	for name, test := range map[string]struct {
		selector, labels map[string]string
		want             bool
	}{
		"all": {
			nil, nil, true},
		"of the label":  {map[string]string{"net": "1"}, map[string]string{"net": "1", "zone": "a"}, true},
		"of another":    {map[string]string{"net": "1"}, map[string]string{"net": "2"}, false},
		"one is lacked": {map[string]string{"net": "1", "zone": ""}, map[string]string{"net": "1"}, false},
	} {
		if got := (&Discovery{NodeSelector: test.selector}).Selects(test.labels); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
