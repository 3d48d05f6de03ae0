package slot

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// names are what Kubernetes lets an Instance be called, and other texts.
func names() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?`), rapid.StringN(1, 20, -1))
}

func TestName(t *testing.T) {
	for text, want := range map[string]Name{
		"akri-onvif-8120fe-0":    {"akri-onvif-8120fe", 0},
		"akri-onvif-8120fe-9999": {"akri-onvif-8120fe", 9999},
		"a-1-2":                  {"a-1", 2},
		"--1":                    {"-", 1},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", "-0", "a", "a-", "a-00", "a-01", "a-+1", "a--", "a- 1", "a-1 ", "a-1\n", "a-x", "a-0x1", "a-1e1", "a-1_0",
		"a-10000", "a-99999999999999999999999999", "a-\u0661", "a-" + strings.Repeat("9", 1<<20),
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%.32q) = %v, want an error", text, got)
		}
	}
}

func TestNameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Name{names().Draw(t, "instance"), rapid.IntRange(0, maxIndex).Draw(t, "index")}
		if got, err := Parse(want.String()); err != nil || got != want {
			t.Fatalf("Parse(%q) = %v, %v, want %v", want, got, err, want)
		}
	})
}

// In JSON a name is its text, and another text is an error.
func TestNameInJSON(t *testing.T) {
	want := []Name{{"akri-onvif-8120fe", 7}}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `["akri-onvif-8120fe-7"]` {
		t.Errorf("%v is %s in JSON (%v)", want, text, err)
	}
	var got []Name
	if err := json.Unmarshal(text, &got); err != nil || len(got) != 1 || got[0] != want[0] {
		t.Errorf("%s is read as %v (%v)", text, got, err)
	}
	if err := json.Unmarshal([]byte(`["akri-onvif-8120fe-07"]`), &got); err == nil {
		t.Errorf("what is no name is read as %v", got)
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"akri-onvif-8120fe-0", "a-01", "-1", "a-9999", "a-10000", "a-1-", "\x00-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text)
		if err != nil {
			return
		}
		if n.String() != text {
			t.Errorf("Parse(%q) = %+v, which is %q", text, n, n)
		}
		if n.Instance == "" || n.Index < 0 || n.Index > maxIndex {
			t.Errorf("Parse(%q) = %+v", text, n)
		}
	})
}

func TestUsage(t *testing.T) {
	for text, want := range map[string]Usage{
		"":             {},
		"node-a":       {Node: "node-a"},
		"C":            {Node: "C"},
		"C:uid:node-a": {Node: "node-a", Holder: "uid"},
	} {
		got, err := ParseUsage(text)
		if err != nil || got != want {
			t.Errorf("ParseUsage(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if got.Free() != (text == "") || got.ConfigurationLevel() != strings.HasPrefix(text, "C:") {
			t.Errorf("ParseUsage(%q): Free() = %v, ConfigurationLevel() = %v", text, got.Free(), got.ConfigurationLevel())
		}
	}
	for _, text := range []string{":", "C:", "C::", "C:uid", "C:uid:", "C::node", "C:a:b:c", "c:uid:node", "a:b", "node:", "C:uid::node"} {
		if got, err := ParseUsage(text); err == nil {
			t.Errorf("ParseUsage(%q) = %+v, want an error", text, got)
		}
	}
}

func TestUsageRoundTrip(t *testing.T) {
	plain := rapid.StringMatching(`[^:]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		want := Usage{}
		if rapid.Bool().Draw(t, "held") {
			want.Node = plain.Draw(t, "node")
			if rapid.Bool().Draw(t, "configuration-level") {
				want.Holder = plain.Draw(t, "holder")
			}
		}
		if got, err := ParseUsage(want.String()); err != nil || got != want {
			t.Fatalf("ParseUsage(%q) = %+v, %v, want %+v", want, got, err, want)
		}
	})
}

func FuzzUsage(f *testing.F) {
	for _, seed := range []string{"", "node-a", "C:uid:node-a", "C:", "C:::", ":", "C:a:b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseUsage(text)
		if err != nil {
			if !u.Free() {
				t.Errorf("ParseUsage(%q) returns %+v and an error", text, u)
			}
			return
		}
		if u.String() != text {
			t.Errorf("ParseUsage(%q) = %+v, which is %q", text, u, u)
		}
		if u.Free() && text != "" {
			t.Errorf("ParseUsage(%q) is a free slot", text)
		}
	})
}

func TestAnnotation(t *testing.T) {
	// The forms of Akri's configuration-level-resources proposal.
	for holder, want := range map[string]string{"": "cam-8120fe-0", "uid": "C:uid:cam-8120fe-0"} {
		key, value := Annotation(Name{"cam-8120fe", 0}, holder)
		if key != "akri.agent.slot-cam-8120fe-0" || value != want {
			t.Errorf("Annotation(%q) = %s=%s, want the value %s", holder, key, value, want)
		}
	}
	for name, tc := range map[string]struct {
		key, value string
		ours       bool
	}{
		"another key":      {"io.kubernetes.pod.name", "cam-8120fe-0", false},
		"another slot":     {"akri.agent.slot-cam-8120fe-0", "cam-8120fe-1", true},
		"no holder":        {"akri.agent.slot-cam-8120fe-0", "C::cam-8120fe-0", true},
		"nothing":          {"akri.agent.slot-", "", true},
		"no slot":          {"akri.agent.slot-cam", "cam", true},
		"holder and colon": {"akri.agent.slot-cam-8120fe-0", "C:a:b:cam-8120fe-0", true},
	} {
		t.Run(name, func(t *testing.T) {
			n, holder, ours, err := ParseAnnotation(tc.key, tc.value)
			if ours != tc.ours || (err != nil) != tc.ours || n != (Name{}) || holder != "" {
				t.Errorf("ParseAnnotation(%q, %q) = %v, %q, %v, %v", tc.key, tc.value, n, holder, ours, err)
			}
		})
	}
}

func TestAnnotationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Name{rapid.StringMatching(`[a-z0-9-]{1,20}`).Draw(t, "instance"), rapid.IntRange(0, maxIndex).Draw(t, "index")}
		holder := rapid.StringMatching(`([^:]{1,36})?`).Draw(t, "holder")
		key, value := Annotation(want, holder)
		got, gotHolder, ok, err := ParseAnnotation(key, value)
		if err != nil || !ok || got != want || gotHolder != holder {
			t.Fatalf("ParseAnnotation(%q, %q) = %v, %q, %v, %v", key, value, got, gotHolder, ok, err)
		}
	})
}

func FuzzAnnotation(f *testing.F) {
	f.Add("akri.agent.slot-cam-8120fe-0", "C:uid:cam-8120fe-0")
	f.Add("akri.agent.slot-cam-8120fe-0", "cam-8120fe-0")
	f.Add("akri.agent.slot-C:x-0", "C:C:C:x-0")
	f.Fuzz(func(t *testing.T, key, value string) {
		n, holder, ok, err := ParseAnnotation(key, value)
		if !ok || err != nil {
			return
		}
		if k, v := Annotation(n, holder); k != key || v != value {
			t.Errorf("ParseAnnotation(%q, %q) = %v, %q, which is %q, %q", key, value, n, holder, k, v)
		}
	})
}

func TestInstanceHash(t *testing.T) {
	if got := InstanceHash("foo0", true, "node-a", ShortHash); got != "8120fe" {
		t.Errorf("hash of the shared device foo0 = %s, want 8120fe as Akri has it", got)
	}
	if got := InstanceName("akri-debug-echo", "8120fe"); got != "akri-debug-echo-8120fe" {
		t.Errorf("InstanceName() = %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		id, node := rapid.String().Draw(t, "id"), rapid.String().Draw(t, "node")
		digits := rapid.SampledFrom([]int{ShortHash, LongHash}).Draw(t, "digits")
		local := InstanceHash(id, false, node, digits)
		if local != InstanceHash(id+node, true, "another", digits) {
			t.Fatalf("the hash of a local device %q on %q is not that of both together", id, node)
		}
		if len(local) != digits || strings.Trim(local, "0123456789abcdef") != "" {
			t.Fatalf("hash %q is not %d hexadecimal digits", local, digits)
		}
		if c, h := SplitInstance(InstanceName("a-b", local)); c != "a-b" || h != local {
			t.Fatalf("SplitInstance(a-b-%s) = %q, %q", local, c, h)
		}
	})
}

// The values of Akri's own tests of names and usage: test_parse_slot_id and
// test_device_usage of agent/src/plugin_manager/device_plugin_instance_controller.rs.
func TestAkrisValues(t *testing.T) {
	for text, want := range map[string]Name{"slot-1": {"slot", 1}, "my-other-slot-2": {"my-other-slot", 2}} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	if got, err := Parse("not-a-slot-id"); err == nil {
		t.Errorf("Parse(not-a-slot-id) = %v, want an error", got)
	}
	for text, want := range map[string]Usage{"": {}, "node-a": {Node: "node-a"}, "C:vdev1:node-a": {Node: "node-a", Holder: "vdev1"}} {
		if got, err := ParseUsage(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseUsage(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	if got, err := ParseUsage("C:node-a"); err == nil {
		t.Errorf("ParseUsage(C:node-a) = %+v, want an error", got)
	}
}
