package assignment

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types"
)

func TestUnknownKeys(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
		whole            bool // nothing comes after want
	}{
		{name: "all keys", text: `{"podname":"p","nodename":"n","requests":{"a/b":1},"initcontainer":{"i":{"requests":{"a/b":1}}},
			"runningcontainer":{"main":{"requests":{"a/b":1},"devrequests":{},"allocatefrom":{},"scorer":{}}}}`},
		{name: "any case", text: `{"RunningContainer":{"main":{"Requests":{"a/b":1}}}}`},
		{name: "one letter more", text: `{"runningcontainers":{"main":{"requests":{"a/b":1}}}}`, want: `unknown key "runningcontainers": the keys there are podname, nodename, requests, initcontainer, runningcontainer; did you mean "runningcontainer"?`},
		{name: "one letter less", text: `{"runningcontainer":{"main":{"request":{"a/b":1}}}}`, want: `unknown key "runningcontainer.main.request": the keys there are requests, devrequests, allocatefrom, scorer; did you mean "runningcontainer.main.requests"?`},
		{name: "KubeDevice's names in Go", text: `{"InitContainers":{}}`, want: `; did you mean "initcontainer"?`},
		{name: "like none", text: `{"widgets":{}}`, want: `unknown key "widgets": the keys there are podname, nodename, requests, initcontainer, runningcontainer`, whole: true},
		{name: "like none, in a container", text: `{"runningcontainer":{"main":{"resources":{}}}}`, want: `unknown key "runningcontainer.main.resources": the keys there are requests, devrequests, allocatefrom, scorer`, whole: true},
		{name: "in an init container", text: `{"initcontainer":{"warm":{"alocatefrom":{}}}}`, want: `"initcontainer.warm.allocatefrom"`},
		{name: "a container that is none", text: `{"runningcontainer":{"main":null}}`},
		{name: "resources may have any name", text: `{"requests":{"runningcontainers":1}}`},
		{name: "long", text: `{"` + strings.Repeat("ä", 10_000) + `":1}`, want: `…": the keys there are`},
		{name: "no object", text: `[1]`},
		{name: "containers that are none", text: `{"runningcontainer":[1]}`},
		{name: "empty", text: ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkKeys(test.text)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 500):
				t.Errorf("%v, want %s", err, test.want)
			case test.whole && !strings.HasSuffix(err.Error(), test.want):
				t.Errorf("%v, want no more than %s", err, test.want)
			}
		})
	}
}

// The lists of keys are those of the types.
func TestKeysAreThoseOfTheTypes(t *testing.T) {
	keysOf := func(of any) []string {
		var keys []string
		for field := range reflect.TypeOf(of).Fields() {
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key != "-" {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return keys
	}
	if got, want := slices.Sorted(slices.Values(podKeys)), keysOf(types.PodInfo{}); !slices.Equal(got, want) {
		t.Errorf("keys of a pod %q, want %q", got, want)
	}
	if got, want := slices.Sorted(slices.Values(requestKeys)), keysOf(types.ContainerInfo{}); !slices.Equal(got, want) {
		t.Errorf("keys of a container %q, want %q", got, want)
	}
}

func FuzzCheckKeys(f *testing.F) {
	f.Add(`{"runningcontainer":{"main":{"request":{"a/b":1}}}}`)
	f.Add(`{"":{"":{"":null}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		err := checkKeys(text)
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &object) != nil || err != nil {
			return
		}
		for key := range maps.Keys(object) {
			if !slices.ContainsFunc(podKeys, func(k string) bool { return strings.EqualFold(k, key) }) {
				t.Errorf("%q passes", key)
			}
		}
	})
}
