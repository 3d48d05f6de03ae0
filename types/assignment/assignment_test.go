package assignment

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/slot"
)

// brokerJSON is the example of the design's pod annotation contract.
const brokerJSON = `{"podname":"onvif-broker","nodename":"node-a","runningcontainer":{"nginx":{` +
	`"requests":{"akri.sh/akri-onvif":2},` +
	`"allocatefrom":{"akri.sh/akri-onvif/0":"akri-onvif-8120fe-0","akri.sh/akri-onvif/1":"akri-onvif-a19705-1"}}}}`

var brokerGrants = []Grant{
	{Resource: "akri-onvif", Ordinal: 0, Slot: slot.Name{Instance: "akri-onvif-8120fe", Index: 0}},
	{Resource: "akri-onvif", Ordinal: 1, Slot: slot.Name{Instance: "akri-onvif-a19705", Index: 1}},
}

func broker() *types.PodInfo {
	c := types.ContainerInfo{}
	Set(&c, brokerGrants)
	return &types.PodInfo{Name: "onvif-broker", NodeName: "node-a",
		RunningContainers: map[string]types.ContainerInfo{"nginx": c}}
}

func TestTheContractsExample(t *testing.T) {
	annotations, err := Encode(broker(), "uid", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"KubeDevice/DeviceInfo": brokerJSON, "kubeslot.io/holder": "uid"}
	if diff := cmp.Diff(want, annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	info, err := DecodePod(annotations)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(broker(), info); diff != "" {
		t.Errorf("DecodePod() (-want +got):\n%s", diff)
	}
	c := info.RunningContainers["nginx"]
	grants, err := Grants(&c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(brokerGrants, grants); diff != "" {
		t.Errorf("Grants() (-want +got):\n%s", diff)
	}
}

// written are the annotations of a pod whose author wrote info.
func written(t *testing.T, info *types.PodInfo) map[string]string {
	t.Helper()
	text, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{Annotation: string(text)}
}

func TestInputIsWhatAnAuthorMayWrite(t *testing.T) {
	forged := types.ContainerInfo{
		Requests:     types.ResourceList{"resource/gpu": 1},
		Scorer:       types.ResourceScorer{"resource/gpu": 2},
		DevRequests:  types.ResourceList{"resource/gpu": 9},
		AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-8120fe-0"},
	}
	mayWrite := types.ContainerInfo{Requests: forged.Requests, Scorer: forged.Scorer}
	got, err := Input(written(t, &types.PodInfo{
		Name: "another", NodeName: "node-b", Requests: types.ResourceList{"pod/wide": 3},
		InitContainers:    map[string]types.ContainerInfo{"init": forged},
		RunningContainers: map[string]types.ContainerInfo{"main": forged},
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := &types.PodInfo{
		Requests:          types.ResourceList{"pod/wide": 3},
		InitContainers:    map[string]types.ContainerInfo{"init": mayWrite},
		RunningContainers: map[string]types.ContainerInfo{"main": mayWrite},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Input() (-want +got):\n%s", diff)
	}

	if got, err := Input(nil); err != nil || !cmp.Equal(got, &types.PodInfo{}) {
		t.Errorf("Input(nil) = %+v, %v, want nothing", got, err)
	}
	negative := map[string]types.ContainerInfo{"main": {Requests: types.ResourceList{"x": -1}}}
	for name, info := range map[string]*types.PodInfo{
		"pod":            {Requests: types.ResourceList{"x": -1}},
		"init container": {InitContainers: negative},
		"container":      {RunningContainers: negative},
	} {
		if _, err := Input(written(t, info)); err == nil || !strings.Contains(err.Error(), "cannot be negative") {
			t.Errorf("a negative count in the %s: Input() = %v, want an error", name, err)
		}
	}
}

func TestGranted(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		uid         string
		granted     bool
		wantErr     string
	}{
		"by the scheduler":        {annotations: map[string]string{Annotation: brokerJSON, HolderAnnotation: "uid"}, uid: "uid", granted: true},
		"no annotation":           {uid: "uid"},
		"only a holder":           {annotations: map[string]string{HolderAnnotation: "uid"}, uid: "uid"},
		"forged without a holder": {annotations: map[string]string{Annotation: brokerJSON}, uid: "uid"},
		"of another pod":          {annotations: map[string]string{Annotation: brokerJSON, HolderAnnotation: "another"}, uid: "uid"},
		"a pod without UID":       {annotations: map[string]string{Annotation: brokerJSON, HolderAnnotation: ""}},
		"not even read unless the scheduler's": {
			annotations: map[string]string{Annotation: "{"}, uid: "uid"},
		"for another node": {
			annotations: map[string]string{Annotation: strings.Replace(brokerJSON, "node-a", "node-b", 1), HolderAnnotation: "uid"},
			uid:         "uid", wantErr: `on node "node-b", but the pod is on node "node-a"`},
		"for no node": {
			annotations: map[string]string{Annotation: "{}", HolderAnnotation: "uid"}, uid: "uid", wantErr: `on node ""`},
		"malformed": {
			annotations: map[string]string{Annotation: `{"podname":`, HolderAnnotation: "uid"}, uid: "uid", wantErr: "is not the JSON of a PodInfo"},
		"of the wrong type": {
			annotations: map[string]string{Annotation: `{"nodename":3}`, HolderAnnotation: "uid"}, uid: "uid", wantErr: "is not the JSON of a PodInfo"},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := Granted(tc.annotations, tc.uid, "node-a")
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("Granted() = %v, want an error with %q", err, tc.wantErr)
				}
			} else if err != nil {
				t.Error(err)
			}
			if (info != nil) != tc.granted {
				t.Errorf("Granted() = %+v, want something: %v", info, tc.granted)
			}
		})
	}
}

func TestGrantsAreOrderedAndChecked(t *testing.T) {
	c := types.ContainerInfo{AllocateFrom: types.ResourceLocation{
		"akri.sh/cam/10": "cam-8120fe-3", "akri.sh/cam/2": "cam-a19705-0", "akri.sh/cam-8120fe/0": "cam-8120fe-1",
		"akri.sh/a/0": "a-ffffff-0", "resource/group/gpu/0/cards": "anything",
	}}
	grants, err := Grants(&c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range grants {
		got = append(got, g.Slot.String())
		if g.InstanceLevel() != (g.Resource == "cam-8120fe") {
			t.Errorf("%+v: InstanceLevel() = %v", g, g.InstanceLevel())
		}
	}
	if diff := cmp.Diff([]string{"a-ffffff-0", "cam-a19705-0", "cam-8120fe-3", "cam-8120fe-1"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}

	for key, value := range map[types.ResourceName]types.ResourceName{
		"akri.sh/":                      "cam-8120fe-0",
		"akri.sh/cam":                   "cam-8120fe-0",
		"akri.sh/cam/":                  "cam-8120fe-0",
		"akri.sh//0":                    "cam-8120fe-0",
		"akri.sh/cam/-1":                "cam-8120fe-0",
		"akri.sh/cam/+1":                "cam-8120fe-0",
		"akri.sh/cam/x":                 "cam-8120fe-0",
		"akri.sh/cam/0/0":               "cam-8120fe-0",
		"akri.sh/cam/70000":             "cam-8120fe-0",
		"akri.sh/cam/99999999999999999": "cam-8120fe-0",
		"akri.sh/cam/0":                 "cam",
		"akri.sh/cam/1":                 "cam-8120fe-99999999",
	} {
		c := types.ContainerInfo{AllocateFrom: types.ResourceLocation{key: value}}
		if grants, err := Grants(&c); err == nil {
			t.Errorf("Grants(%s: %s) = %v, want an error", key, value, grants)
		}
	}
}

func TestSetKeepsWhatOthersRequested(t *testing.T) {
	before := types.ResourceList{"resource/gpu": 1}
	c := types.ContainerInfo{Requests: before}
	Set(&c, brokerGrants)
	if diff := cmp.Diff(types.ResourceList{"resource/gpu": 1, "akri.sh/akri-onvif": 2}, c.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if len(before) != 1 {
		t.Errorf("Set() changed the author's requests to %v", before)
	}
}

func genGrants() *rapid.Generator[[]Grant] {
	return rapid.Custom(func(t *rapid.T) []Grant {
		var grants []Grant
		resources := rapid.SliceOfDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`), rapid.ID[string]).Draw(t, "resources")
		for _, resource := range resources {
			for n := range rapid.IntRange(1, 5).Draw(t, "count") {
				grants = append(grants, Grant{resource, n, slot.Name{
					Instance: rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`).Draw(t, "instance"),
					Index:    rapid.IntRange(0, 9999).Draw(t, "index"),
				}})
			}
		}
		return grants
	})
}

func TestGrantsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := types.ContainerInfo{}
		want := genGrants().Draw(t, "grants")
		Set(&c, want)
		info := &types.PodInfo{NodeName: "node-a", RunningContainers: map[string]types.ContainerInfo{"main": c}}
		annotations, err := Encode(info, "uid", nil)
		if err != nil {
			t.Fatal(err)
		}
		granted, err := Granted(annotations, "uid", "node-a")
		if err != nil {
			t.Fatal(err)
		}
		main := granted.RunningContainers["main"]
		got, err := Grants(&main)
		if err != nil {
			t.Fatal(err)
		}
		byResource := cmpopts.SortSlices(func(a, b Grant) bool {
			return a.Resource < b.Resource || a.Resource == b.Resource && a.Ordinal < b.Ordinal
		})
		if diff := cmp.Diff(want, got, byResource, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("grants (-want +got):\n%s", diff)
		}
	})
}

func TestAnAssignmentTooLargeForThePodIsRefused(t *testing.T) {
	info := broker()
	info.Name = strings.Repeat("x", MaxBytes)
	if _, err := Encode(info, "uid", nil); err == nil || !strings.Contains(err.Error(), "request fewer slots") {
		t.Errorf("Encode() = %v, want an error that says what to do", err)
	}
}

// Nobody can make a reader panic, or be granted what the scheduler did not.
func FuzzAnnotation(f *testing.F) {
	f.Add(brokerJSON, "uid")
	f.Add(`{}`, "")
	f.Add(`null`, "uid")
	f.Add(`[]`, "uid")
	f.Add(`{"nodename":"node-a","runningcontainer":{"":null}}`, "uid")
	f.Add(`{"nodename":"node-a","runningcontainer":{"a":{"allocatefrom":{"akri.sh/a/0":"-"}}}}`, "uid")
	f.Add(`{"requests":{"a":9223372036854775808}}`, "uid")
	f.Add(strings.Repeat(`{"runningcontainer":`, 20000), "uid")
	f.Fuzz(func(t *testing.T, text, holder string) {
		annotations := map[string]string{Annotation: text, HolderAnnotation: holder}
		_, _ = Input(annotations)
		_, _ = DecodeNode(annotations)
		info, err := Granted(annotations, "uid", "node-a")
		if info == nil {
			return
		}
		if err != nil || holder != "uid" || info.NodeName != "node-a" {
			t.Fatalf("granted %+v to holder %q, with error %v", info, holder, err)
		}
		for _, c := range info.RunningContainers {
			grants, err := Grants(&c)
			if err != nil && grants != nil {
				t.Errorf("Grants() = %v and %v", grants, err)
			}
		}
		again, err := Encode(info, holder, nil)
		if err != nil {
			return // too large
		}
		back, err := DecodePod(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(info, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("encoded and decoded (-want +got):\n%s", diff)
		}
	})
}

func TestNodeRoundTrip(t *testing.T) {
	info := &types.NodeInfo{
		Name: "node-a", Capacity: types.ResourceList{"resource/gpu": 2}, Allocatable: types.ResourceList{"resource/gpu": 1},
		Used: types.ResourceList{"resource/gpu": 0}, Scorer: types.ResourceScorer{"resource/gpu": 1},
	}
	text, err := EncodeNode(info)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeNode(map[string]string{Annotation: text})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(info, got); diff != "" {
		t.Errorf("DecodeNode() (-want +got):\n%s", diff)
	}
	if got, err := DecodeNode(nil); got != nil || err != nil {
		t.Errorf("DecodeNode of a bare node = %v, %v", got, err)
	}
	if _, err := DecodeNode(map[string]string{Annotation: "{"}); err == nil {
		t.Error("a malformed annotation was read")
	}
}
