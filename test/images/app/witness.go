package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	if text, has := os.LookupEnv("AKRI_DEVICES"); has {
		var devices []struct {
			Slot       string            `json:"slot"`
			Properties map[string]string `json:"properties"`
		}
		if err := json.Unmarshal([]byte(text), &devices); err != nil {
			return fmt.Errorf("AKRI_DEVICES: %w", err)
		}
		for _, d := range devices {
			r.Devices = append(r.Devices, device{Slot: d.Slot, ID: d.Properties["DEBUG_ECHO_DESCRIPTION"]})
		}
	}
	_, err := os.Stat(mount)
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
