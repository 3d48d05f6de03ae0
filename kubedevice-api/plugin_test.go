package kubedeviceapi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldPlugin: testdata/oldplugin is written to KubeDevice-API's import paths.
// It compiles with nothing but replace lines in its go.mod.
func TestOldPlugin(t *testing.T) {
	run(t, "testdata/oldplugin", []string{"GOWORK=off"}, "go", "vet", "./...")
}

// TestOldPluginLoads builds the same plugins in a workspace, and a program of
// Kubeslot's main module alone, with the flags of the Makefile. The program
// loads them and drives them through Kubeslot's types: a pod gets its devices.
//
// Without the workspace they would not load: -trimpath puts a module's version
// into the paths of its packages, and a main module has none.
func TestOldPluginLoads(t *testing.T) {
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Skip("needs cgo, that is a C compiler: Go plugins do not build without")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	old := filepath.Join(root, "kubedevice-api/testdata/oldplugin")
	workspace := []string{"GOWORK=" + filepath.Join(dir, "go.work")}
	run(t, dir, workspace, "go", "work", "init", root, filepath.Join(root, "types"), filepath.Join(root, "kubedevice-api"), old)
	for _, half := range []string{"device", "scheduler"} {
		run(t, old, workspace, "go", "build", "-trimpath", "-buildmode=plugin", "-o", filepath.Join(dir, half+".so"), "./"+half)
	}
	// The overlay puts the program into Kubeslot's main module.
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "kubedevice-api-host/main.go"): filepath.Join(root, "kubedevice-api/testdata/host/main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(overlay))
	run(t, root, []string{"GOWORK="}, "go", "build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"),
		"-o", filepath.Join(dir, "host"), "./kubedevice-api-host")

	got := run(t, dir, nil, "./host", "device.so", "scheduler.so")
	want := "dongle dongle 2 [{/license /etc true}] [/dev/full] map[DONGLE_PORTS:1,0]\n"
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func run(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
