package debugecho

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
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
		local   bool   // Handler.Local
		warning string // a part of the one warning
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
		"local devices by the handler's option": {
			details: "descriptions: [foo0]", local: true,
			want: discovery.Result{Devices: []discovery.Device{echo("foo0")}},
		},
		"shared devices against the handler's option": {
			details: "{descriptions: [foo0], shared: true}", local: true,
			want: discovery.Result{Shared: true, Devices: []discovery.Device{echo("foo0")}},
		},
		"a key that it does not have": { // works in Akri
			details: "{descriptions: [foo0], colour: red}", warning: `unknown field "colour"`,
			want: discovery.Result{Shared: true, Devices: []discovery.Device{echo("foo0")}},
		},
		"empty":            {details: "", wantErr: "descriptions, the list of devices to find, is missing"},
		"not YAML":         {details: "descriptions: [", wantErr: "discoveryDetails of debugEcho"},
		"misspelt":         {details: "description: [foo0]", wantErr: "descriptions, the list of devices to find, is missing", warning: `unknown field "description"`},
		"wrong type":       {details: "descriptions: 3", wantErr: "discoveryDetails of debugEcho"},
		"half a mount":     {details: "{descriptions: [a], mounts: [{hostPath: /h}]}", wantErr: "mounts[0]: containerPath and hostPath"},
		"half a node":      {details: "{descriptions: [a], deviceSpecs: [{hostPath: /h}]}", wantErr: "deviceSpecs[0]"},
		"the root":         {details: "{descriptions: [a], mounts: [{containerPath: /, hostPath: /h}]}", wantErr: `mounts[0]: containerPath "/": is the container's root`},
		"a token":          {details: "{descriptions: [a], mounts: [{containerPath: /var/run/secrets, hostPath: /h}]}", wantErr: "the directory of the container's ServiceAccount"},
		"a node in /proc":  {details: "{descriptions: [a], deviceSpecs: [{containerPath: /proc/x, hostPath: /h}]}", wantErr: `deviceSpecs[0]: containerPath "/proc/x": is the kernel's`},
		"a relative path":  {details: "{descriptions: [a], mounts: [{containerPath: c, hostPath: /h}]}", wantErr: "want an absolute path"},
		"twice the same":   {details: "descriptions: [a]\ndescriptions: [b]", wantErr: "already set"},
		"a list, not keys": {details: "[foo0]", wantErr: "discoveryDetails of debugEcho"},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings []string
			request := discovery.Request{Details: tc.details, Warn: func(message string) { warnings = append(warnings, message) }}
			got, err := parse(request, !tc.local)
			switch {
			case tc.warning == "" && len(warnings) > 0:
				t.Errorf("parse() warns of %q", warnings)
			case tc.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], tc.warning)):
				t.Errorf("parse() warns of %q, want one with %q", warnings, tc.warning)
			}
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !errors.Is(err, discovery.ErrInvalid) {
					t.Fatalf("parse() = %v, want an ErrInvalid with %q", err, tc.wantErr)
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
		result, err := parse(discovery.Request{Details: text}, true)
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
	r := await.Next(t, fmt.Sprintf("a report of %d devices", devices), reports)
	if len(r.Devices) != devices || !r.Shared {
		t.Fatalf("reported %+v, want %d shared devices", r, devices)
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

	write(t, file, "# by hand\nnow OFFLINE, as Akri has it\n")
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

func TestADirectoryThatComesLater(t *testing.T) {
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
	err := (&Handler{}).Discover(t.Context(), discovery.Request{Details: "descriptions: red"},
		func(r discovery.Result) { t.Errorf("reported %+v", r) })
	if !errors.Is(err, discovery.ErrInvalid) || !strings.Contains(err.Error(), "descriptions") {
		t.Errorf("Discover() = %v, want an ErrInvalid that names the key", err)
	}
}

func TestAPipeIsNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "availability.txt")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("cannot make a pipe: %v", err)
	}
	wantReport(t, discover(t, &Handler{AvailabilityFile: pipe}, "descriptions: [foo0]"), 1)
}
