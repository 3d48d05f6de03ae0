package claims

import (
	"maps"
	"testing"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A container's annotations say which slots it uses, and how; one that cannot be read hides no other.
func TestUsed(t *testing.T) {
	kind, device := mustSlot(t, "cam-a1-0"), mustSlot(t, "cam-b2-1")
	annotations := map[string]string{"mine": "x", "akri.agent.slot-cam-c3-0": "cam-c3-9"}
	for name, holder := range map[slot.Name]string{kind: "u1", device: ""} {
		key, value := slot.Annotation(name, holder)
		annotations[key] = value
	}
	used, err := Used(annotations)
	if err == nil {
		t.Error("an annotation that names another slot is no error")
	}
	if want := map[slot.Name]Use{kind: {v1alpha1.ConfigurationLevel, "u1"},
		device: {v1alpha1.InstanceLevel, "cam-b2-1"}}; !maps.Equal(used, want) {
		t.Errorf("Used() = %v, want %v", used, want)
	}
}
