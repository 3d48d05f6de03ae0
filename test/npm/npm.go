// Package npm installs npm packages for tests, which run them as peers that somebody
// else wrote.
package npm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/kubeslot/kubeslot/test/need"
)

// Install returns a node_modules folder with the packages, each with its exact version,
// such as "onvif@0.8.3". A script finds them there with NODE_PATH. The folder is in the
// user's cache and is filled once; no package's install scripts are run. Safe for tests
// of several packages at a time.
//
// Where node or npm is missing, or npm cannot install, the test needs what is missing: see
// package need.
func Install(t testing.TB, packages ...string) (modules string) {
	t.Helper()
	modules, err := install(packages)
	if err != nil {
		need.Missing(t, err.Error())
	}
	return modules
}

var exact = regexp.MustCompile(`^\d+\.\d+\.\d+[-.0-9A-Za-z]*$`)

func install(packages []string) (modules string, err error) {
	dependencies := map[string]string{}
	for _, p := range packages {
		_, version, _ := strings.Cut(strings.TrimPrefix(p, "@"), "@")
		if !exact.MatchString(version) {
			return "", fmt.Errorf("npm package %q: want <name>@<version>, such as onvif@0.8.3", p)
		}
		dependencies[p[:len(p)-len("@"+version)]] = version
	}
	manifest, err := json.Marshal(map[string]any{"private": true, "dependencies": dependencies})
	if err != nil {
		return "", err
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is not installed: apt-get install nodejs npm", program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "kubeslot", "npm")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256(manifest)
	dir := filepath.Join(cache, hex.EncodeToString(sum[:8]))
	modules = filepath.Join(dir, "node_modules")

	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // ends the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	// Elsewhere, so that what was broken off is not taken for the whole.
	work, err := os.MkdirTemp(cache, "install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "package.json"), manifest, 0o644); err != nil {
		return "", err
	}
	cmd := exec.Command("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = work
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %s: %w\n%s", strings.Join(packages, " "), err, output)
	}
	return modules, os.Rename(work, dir)
}
