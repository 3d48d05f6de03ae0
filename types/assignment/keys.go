package assignment

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/spelling"
)

// The keys that package types' PodInfo and ContainerInfo have in JSON.
var (
	podKeys       = []string{"podname", "nodename", "requests", containerKeys[0], containerKeys[1]}
	containerKeys = []string{"initcontainer", "runningcontainer"}
	requestKeys   = []string{"requests", "devrequests", "allocatefrom", "scorer"}
)

// checkKeys refuses a key that nobody reads: most likely it is misspelt, and the pod
// would run without what it asks for. Case does not matter, as for encoding/json.
func checkKeys(text string) error {
	var pod map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &pod); err != nil {
		return nil // not an object: its reader says so
	}
	if err := known(pod, podKeys, ""); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(pod)) {
		if !slices.ContainsFunc(containerKeys, func(k string) bool { return strings.EqualFold(k, key) }) {
			continue
		}
		var containers map[string]map[string]json.RawMessage
		if err := json.Unmarshal(pod[key], &containers); err != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			if err := known(containers[name], requestKeys, key+"."+name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

func known(object map[string]json.RawMessage, keys []string, path string) error {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, key) }) {
			continue
		}
		hint := ""
		if near := spelling.Nearest(key, keys); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", path+near)
		}
		return fmt.Errorf("annotation %s: unknown key %q: the keys there are %s%s", Annotation, path+shorten(key), strings.Join(keys, ", "), hint)
	}
	return nil
}

// shorten keeps a key of an author's from filling a message.
func shorten(key string) string {
	const most = 64
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "…"
}
