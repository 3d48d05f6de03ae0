// Package preflight tests that `make demo` says what a machine lacks.
package preflight

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

const script = "../../hack/preflight.sh"

// machine is a PATH with what every Linux has, and the given programs, each of
// which prints the text, or where a cache of Go is.
func machine(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"awk", "bash", "df", "dirname", "du", "head", "id", "sed", "sort", "uname"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, prints := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!"+dir+"/bash\ncase \"$*\" in *CACHE) echo /var/tmp/caches ;; *) echo '"+prints+"' ;; esac\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Another user is to read it.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPreflight(t *testing.T) {
	const nobody = 65534
	tests := map[string]struct {
		programs map[string]string
		uid      uint32
		says     []string // regular expressions
		further  []string // needs, beside root, go and gcc
	}{
		"all there":       {map[string]string{"go": "go1.99.0", "gcc": ""}, 0, nil, []string{"disk:0", "memory:0"}},
		"no Go":           {map[string]string{"gcc": ""}, 0, []string{"Go is not on PATH", "go.dev/dl"}, nil},
		"old Go":          {map[string]string{"go": "go1.20.1", "gcc": ""}, 0, []string{"Go is 1.20.1", "1.26"}, nil},
		"no gcc":          {map[string]string{"go": "go1.99.0"}, 0, []string{"gcc is not on PATH", "apt-get install gcc"}, nil},
		"not root":        {map[string]string{"go": "go1.99.0", "gcc": ""}, nobody, []string{"not root", "sudo"}, nil},
		"nothing at once": {nil, nobody, []string{"Go is not on PATH", "gcc is not on PATH", "not root"}, nil},
		"no room": {map[string]string{"go": "go1.99.0", "gcc": ""}, 0,
			[]string{`GB free, and the build takes up to 100000[2-7] GB there \(/var/tmp`, "GB of memory are available", "takes 2000000 GB"}, []string{"disk:1000000", "memory:2000000"}},
		"a cluster": {map[string]string{"go": "go1.99.0", "gcc": ""}, 0,
			[]string{`the cluster "preflight-kept" is there already`, `"make demo-down NAME=preflight-kept"`, "another name with NAME="}, []string{"cluster:preflight-kept"}},
		"logs of a cluster": {map[string]string{"go": "go1.99.0", "gcc": ""}, 0, nil, []string{"cluster:preflight-logs"}},
		"no cluster":        {map[string]string{"go": "go1.99.0", "gcc": ""}, 0, nil, []string{"cluster:preflight-none"}},
	}
	if os.Getuid() == 0 {
		for cluster, files := range map[string][]string{"preflight-kept": {"logs", "cluster.json"}, "preflight-logs": {"logs"}} {
			dir := filepath.Join("/var/tmp/kubeslot", cluster)
			t.Cleanup(func() { os.RemoveAll(dir) })
			for _, file := range files {
				if err := os.MkdirAll(filepath.Join(dir, file), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Skip("needs root, to run the script as root and as somebody else")
			}
			text, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			path := machine(t, test.programs)
			mod, err := os.ReadFile("../../go.mod")
			if err != nil {
				t.Fatal(err)
			}
			for file, data := range map[string][]byte{"hack/preflight.sh": text, "go.mod": mod} {
				file = filepath.Join(path, "repo", file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, data, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(filepath.Join(path, "bash"), append([]string{filepath.Join(path, "repo/hack/preflight.sh")}, append([]string{"root", "go", "gcc"}, test.further...)...)...)
			cmd.Env = []string{"PATH=" + path}
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: test.uid, Gid: test.uid}}
			out, err := cmd.CombinedOutput()
			if (err == nil) != (test.says == nil) {
				t.Fatalf("exit: %v; output:\n%s", err, out)
			}
			for _, s := range test.says {
				if !regexp.MustCompile(s).Match(out) {
					t.Errorf("output lacks %q:\n%s", s, out)
				}
			}
		})
	}
}
