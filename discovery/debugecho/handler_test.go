package debugecho

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
)

func echo(id string) discovery.Device {
	return discovery.Device{ID: id, Properties: map[string]string{DescriptionProperty: id}}
}

func TestDetails(t *testing.T) {
	full := echo("foo0")
	full.Mounts = []discovery.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}}
	full.DeviceSpecs = []discovery.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/null", Permissions: "rwm"}}

	for name, tc := range map[string]struct {
		details string
		guarded bool // without HostAccess
		want    discovery.Result
		wantErr string // a part of the error
	}{
		"shared unless said otherwise": {
			details: `descriptions: ["foo0", "foo1"]`,
			want:    discovery.Result{Shared: true, Devices: []discovery.Device{echo("foo0"), echo("foo1")}},
		},
		"as Akri's chart renders it": {
			details: "descriptions:\n- foo0\n\n",
			want:    discovery.Result{Shared: true, Devices: []discovery.Device{echo("foo0")}},
		},
		"local devices": {
			details: "descriptions: [foo0]\nshared: false",
			want:    discovery.Result{Devices: []discovery.Device{echo("foo0")}},
		},
		"no devices": {
			details: "descriptions: []",
			want:    discovery.Result{Shared: true},
		},
		"mounts and device nodes": {
			details: `{descriptions: [foo0], mounts: [{containerPath: /c, hostPath: /h, readOnly: true}],
				deviceSpecs: [{containerPath: /dev/c, hostPath: /dev/null}]}`,
			want: discovery.Result{Shared: true, Devices: []discovery.Device{full}},
		},
		"without host access, no paths needed": {
			details: "{descriptions: [foo0], mounts: [], deviceSpecs: []}",
			guarded: true,
			want:    discovery.Result{Shared: true, Devices: []discovery.Device{echo("foo0")}},
		},
		"a mount without host access": {
			details: "{descriptions: [foo0], mounts: [{containerPath: /c, hostPath: /}]}",
			guarded: true, wantErr: "--debug-echo-host-access",
		},
		"a device node without host access": {
			details: "{descriptions: [foo0], deviceSpecs: [{containerPath: /dev/c, hostPath: /dev/sda}]}",
			guarded: true, wantErr: "--debug-echo-host-access",
		},
		"empty":            {details: "", wantErr: "descriptions, the list of devices to find, is missing"},
		"not YAML":         {details: "descriptions: [", wantErr: "discoveryDetails of debugEcho"},
		"misspelt":         {details: "description: [foo0]", wantErr: `unknown field "description"`},
		"wrong type":       {details: "descriptions: 3", wantErr: "discoveryDetails of debugEcho"},
		"half a mount":     {details: "{descriptions: [a], mounts: [{hostPath: /h}]}", wantErr: "mounts[0]: containerPath and hostPath"},
		"half a node":      {details: "{descriptions: [a], deviceSpecs: [{hostPath: /h}]}", wantErr: "deviceSpecs[0]"},
		"twice the same":   {details: "descriptions: [a]\ndescriptions: [b]", wantErr: "already set"},
		"a list, not keys": {details: "[foo0]", wantErr: "discoveryDetails of debugEcho"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(tc.details, !tc.guarded)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("parse() = %v, want an error with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("parse() (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDetails(f *testing.F) {
	f.Add(`descriptions: ["foo0", "foo1"]`)
	f.Add("descriptions: [a]\nshared: false\nmounts: [{containerPath: /c, hostPath: /h}]")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, text string) {
		result, err := parse(text, true)
		if err != nil && len(result.Devices) > 0 {
			t.Errorf("parse(%q) returns devices and the error %v", text, err)
		}
	})
}

// discover runs the handler and returns its reports.
func discover(t *testing.T, h *Handler, details string) <-chan discovery.Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan discovery.Result, 10), make(chan error, 1)
	go func() {
		done <- h.Discover(ctx, discovery.Request{Details: details}, func(r discovery.Result) { reports <- r })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Discover() = %v after its context ended, want %v", err, context.Canceled)
		}
	})
	return reports
}

func wantReport(t *testing.T, reports <-chan discovery.Result, devices int) {
	t.Helper()
	select {
	case r := <-reports:
		if len(r.Devices) != devices || !r.Shared {
			t.Fatalf("reported %+v, want %d shared devices", r, devices)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no report of %d devices", devices)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDevicesFollowTheAvailabilityFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "availability.txt")
	reports := discover(t, &Handler{AvailabilityFile: file}, "descriptions: [foo0, foo1]")
	wantReport(t, reports, 2) // no file

	write(t, file, "OFFLINE\n")
	wantReport(t, reports, 0)

	write(t, file, "")
	wantReport(t, reports, 2)

	// Replaced by a rename, as editors and config management do.
	write(t, file+".new", " OFFLINE ")
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	wantReport(t, reports, 0)

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	wantReport(t, reports, 2)
}

func TestOfflineFromTheStartReportsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "availability.txt")
	write(t, file, "OFFLINE")
	reports := discover(t, &Handler{AvailabilityFile: file}, "descriptions: [foo0]")
	wantReport(t, reports, 0)
}

func TestPollsWhatCannotBeWatched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	file := filepath.Join(dir, "availability.txt")
	reports := discover(t, &Handler{AvailabilityFile: file}, "descriptions: [foo0]")
	wantReport(t, reports, 1)

	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, "OFFLINE")
	wantReport(t, reports, 0)
}

func TestBadDetailsFailAtOnce(t *testing.T) {
	err := (&Handler{}).Discover(t.Context(), discovery.Request{Details: "colour: red"},
		func(r discovery.Result) { t.Errorf("reported %+v", r) })
	if err == nil || !strings.Contains(err.Error(), `unknown field "colour"`) {
		t.Errorf("Discover() = %v, want an error that names the unknown field", err)
	}
}

func TestAPipeIsNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "availability.txt")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("cannot make a pipe: %v", err)
	}
	wantReport(t, discover(t, &Handler{AvailabilityFile: pipe}, "descriptions: [foo0]"), 1)
}

// Whoever may write a Configuration is not root on the node, unless it is told so.
func TestHostAccessIsOffByDefault(t *testing.T) {
	request := discovery.Request{Details: "{descriptions: [a], mounts: [{containerPath: /host, hostPath: /}]}"}
	ctx, cancel := context.WithCancel(t.Context())
	err := (&Handler{}).Discover(ctx, request, func(discovery.Result) { t.Error("devices were reported"); cancel() })
	cancel()
	if err == nil || !strings.Contains(err.Error(), "--debug-echo-host-access") {
		t.Errorf("Discover() = %v, want an error that names the flag", err)
	}
}
