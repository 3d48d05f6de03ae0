package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// report is test/history's Inside, of which this program, a small one, does not want
// the dependencies.
type report struct {
	PodUID    string   `json:"podUID"`
	Container string   `json:"container"`
	Devices   []device `json:"devices"`
	Mounted   bool     `json:"mounted"`
}

type device struct {
	Slot string `json:"slot"`
	ID   string `json:"id"`
}

// witness writes what the container has been given to a new file in the folder, before
// the container does anything with it: POD_UID and CONTAINER are in its environment, and
// mount is where its devices' mount is to be.
func witness(folder, mount string) error {
	r := report{PodUID: os.Getenv("POD_UID"), Container: os.Getenv("CONTAINER")}
	var err error
	if r.Devices, err = devices(); err != nil {
		return err
	}
	_, err = os.Stat(mount)
	r.Mounted = err == nil
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Whole or not at all: the container may be killed at any time.
	f, err := os.CreateTemp(folder, ".report-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(folder, filepath.Base(f.Name())[1:]+".json"))
}

// devices are the slots of the container, and the GPUs and the widgets of plugins/example, which each node has for
// itself: NODE is in its environment. They are nil if none is given.
func devices() (all []device, err error) {
	seen := map[string]bool{}
	for _, entry := range os.Environ() {
		// A device plugin, or a request of a ResourceClaim, has AKRI_DEVICES_ and its name.
		name, text, _ := strings.Cut(entry, "=")
		if name != "AKRI_DEVICES" && !strings.HasPrefix(name, "AKRI_DEVICES_") {
			continue
		}
		var slots []struct {
			Slot       string            `json:"slot"`
			Properties map[string]string `json:"properties"`
		}
		if err := json.Unmarshal([]byte(text), &slots); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if all == nil {
			all = []device{}
		}
		for _, s := range slots {
			if !seen[s.Slot] {
				seen[s.Slot] = true
				all = append(all, device{Slot: s.Slot, ID: s.Properties["DEBUG_ECHO_DESCRIPTION"]})
			}
		}
	}
	if text, has := os.LookupEnv("WIDGETS"); has {
		for widget := range strings.SplitSeq(text, ",") {
			all = append(all, device{Slot: os.Getenv("NODE") + "-widget-" + widget, ID: widget})
		}
	}
	if text := os.Getenv("NVIDIA_VISIBLE_DEVICES"); text != "" && text != "void" {
		for uuid := range strings.SplitSeq(text, ",") {
			all = append(all, device{Slot: os.Getenv("NODE") + "-" + uuid, ID: uuid})
		}
	}
	return all, nil
}
