package history

import (
	"strings"
	"testing"
)

func TestCheckInside(t *testing.T) {
	events := read(t, `configuration cam capacity=2
slice a foo0
bind p a cam-8120fe-0
bind none a
show p running`)
	foo := InsideDevice{Slot: "cam-8120fe-0", ID: "foo0"}
	for name, test := range map[string]struct {
		in   Inside
		want string // a part of the one violation; "" for none
	}{
		"its device":          {Inside{PodUID: "p", Container: "main", Devices: []InsideDevice{foo}, Mounted: true}, ""},
		"nothing, as due":     {Inside{PodUID: "none", Container: "main"}, ""},
		"no device":           {Inside{PodUID: "p", Container: "main"}, "has the slots [] and mounted=false, and was assigned [cam-8120fe-0]"},
		"no mount":            {Inside{PodUID: "p", Container: "main", Devices: []InsideDevice{foo}}, "mounted=false"},
		"another slot":        {Inside{PodUID: "p", Container: "main", Devices: []InsideDevice{{"cam-8120fe-1", "foo0"}}, Mounted: true}, "has the slots [cam-8120fe-1]"},
		"the device twice":    {Inside{PodUID: "p", Container: "main", Devices: []InsideDevice{foo, foo}, Mounted: true}, "has the slots"},
		"another device":      {Inside{PodUID: "p", Container: "main", Devices: []InsideDevice{{"cam-8120fe-0", "foo1"}}, Mounted: true}, "which is of another"},
		"more than its due":   {Inside{PodUID: "none", Container: "main", Devices: []InsideDevice{foo}, Mounted: true}, "was assigned []"},
		"a pod not bound":     {Inside{PodUID: "q", Container: "main"}, "never bound"},
		"a slot of no device": {Inside{PodUID: "none", Container: "main", Devices: []InsideDevice{{"x", ""}}}, `slot "x"`},
	} {
		wrong := CheckInside(events, []Inside{test.in})
		if text := strings.Join(wrong, "; "); (text == "") != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}
