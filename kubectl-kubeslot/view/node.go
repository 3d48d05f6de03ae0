package view

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Node says what a node sees, and which slots its pods have.
type Node struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Cordoned bool   `json:"cordoned,omitempty"`
	Kubelet  string `json:"kubelet,omitempty"` // its version
	// Mode is "device-plugin" where the kubelet gives out slots, else empty: the scheduler
	// does.
	Mode      string       `json:"mode,omitempty"`
	Reports   bool         `json:"reports"` // whether it has a DeviceSlice
	Resources []Advertised `json:"resources,omitempty"`
	Instances []Instance   `json:"instances,omitempty"`
	Slots     []Slot       `json:"slots,omitempty"`
	Problems  []string     `json:"problems,omitempty"`
}

// Advertised is what a node says of a Configuration in its status, beside what it
// reaches.
type Advertised struct {
	Resource string `json:"resource"` // akri.sh/...
	// Reached are the slots of the Instances that the node reaches, Free those of them
	// that nobody has; Held are those that it has claimed itself.
	Reached int `json:"reached"`
	Free    int `json:"free"`
	Held    int `json:"held"`
	// Allocatable is what node.status says: the kubelet admits pods for no more.
	Allocatable int64 `json:"allocatable"`
}

// Node returns what there is to say of the node; false when there is neither a Node
// nor a DeviceSlice of the name.
func (v *View) Node(name string) (Node, bool) {
	n := Node{Name: name, Reports: v.reporting[name]}
	allocatable := map[string]int64{}
	o := v.nodesByName[name]
	if o != nil {
		n.Ready, n.Cordoned, n.Kubelet = v1alpha1.Ready(o), o.Spec.Unschedulable, o.Status.NodeInfo.KubeletVersion
		if v1alpha1.ChoosesSlots(o) {
			n.Mode = v1alpha1.ModeDevicePlugin
		}
		for name, amount := range o.Status.Allocatable {
			if of, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix); ours {
				allocatable[of] = amount.Value()
			}
		}
	}
	for i := range v.objects.Slices {
		s := &v.objects.Slices[i]
		if s.Spec.NodeName != name {
			continue
		}
		for _, p := range s.Spec.Problems {
			text := p.Reason + ": " + p.Message
			if p.Configuration != nil {
				text = "Configuration " + p.Configuration.String() + ": " + text
			}
			n.Problems = append(n.Problems, text)
		}
	}
	if away := v.kubecriAway(name); away != "" {
		n.Problems = append(n.Problems, kubecriAway+": "+away)
	}
	rows := map[string]*Advertised{}
	row := func(of string) *Advertised {
		if rows[of] == nil {
			rows[of] = &Advertised{Resource: assignment.ResourcePrefix + of, Allocatable: allocatable[of]}
		}
		return rows[of]
	}
	for of := range allocatable {
		row(of)
	}
	for _, in := range v.Instances() {
		reaches := slices.Contains(in.Nodes, name)
		if reaches || slices.Contains(in.Lost, name) {
			n.Instances = append(n.Instances, in)
		}
		if reaches {
			r := row(in.Configuration)
			r.Reached, r.Free = r.Reached+in.Slots, r.Free+in.Free
		}
	}
	for _, s := range v.Taken() {
		if s.Node == name {
			n.Slots = append(n.Slots, s)
			if r := row(s.Configuration); s.State == Held {
				r.Held++
			}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(rows)) {
		n.Resources = append(n.Resources, *rows[of])
	}
	return n, o != nil || n.Reports
}
