package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

func TestDevicesComeAndGo(t *testing.T) {
	dir := t.TempDir()
	node := func(name string) string { return filepath.Join(dir, name) }
	device := func(name string) discovery.Device {
		return discovery.Device{ID: node(name), Properties: map[string]string{PathProperty: node(name)},
			DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: node(name), HostPath: node(name), Permissions: "rw"}}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan discovery.Result), make(chan error, 1)
	go func() {
		request := discovery.Request{Details: "paths: [" + node("tty*") + ", " + node("*0") + "]"}
		done <- (&Handler{}).Discover(ctx, request, func(r discovery.Result) { reports <- r })
	}()
	want := func(what string, devices ...discovery.Device) {
		t.Helper()
		got := await.Next(t, "a report of "+what, reports)
		if diff := cmp.Diff(discovery.Result{Devices: devices}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("an empty directory")
	for _, name := range []string{"tty0", "other"} {
		if err := os.WriteFile(node(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want("one device that two patterns match", device("tty0"))
	if err := os.Remove(node("tty0")); err != nil {
		t.Fatal(err)
	}
	want("the directory without it")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Discover() = %v, want %v", err, context.Canceled)
	}
}

func TestBadDetails(t *testing.T) {
	for details, want := range map[string]string{
		"":              "paths, the patterns",
		"paths: []":     "paths, the patterns",
		"paths: /dev/x": "paths",
		"paths: ['/[']": `paths[0] "/["`,
		"paths: [a":     "not YAML",
	} {
		err := (&Handler{}).Discover(t.Context(), discovery.Request{Details: details}, func(discovery.Result) {})
		if !errors.Is(err, discovery.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: Discover() = %v, want an ErrInvalid with %q", details, err, want)
		}
	}
}
