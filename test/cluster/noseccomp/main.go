// Command noseccomp stands in front of runc and takes the seccomp profile out of
// each container's OCI specification.
//
// kubelet asks for the runtime's default profile for every sandbox, and runc
// knows seccomp only when it is linked with libseccomp: a C library with
// headers, which is no Go module, so the cluster does not depend on it.
// The real one is the link runc.real beside this program.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	self, err := os.Executable()
	if err == nil {
		err = dropSeccomp(os.Args[1:])
	}
	if err == nil {
		real := filepath.Join(filepath.Dir(self), "runc.real")
		err = syscall.Exec(real, append([]string{"runc"}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "noseccomp:", err)
	os.Exit(1)
}

// dropSeccomp edits the bundle that a create command is about.
func dropSeccomp(args []string) error {
	if !slices.Contains(args, "create") {
		return nil
	}
	i := slices.Index(args, "--bundle")
	if i < 0 || i+1 == len(args) {
		return fmt.Errorf("create without --bundle: %q", args)
	}
	path := filepath.Join(args[i+1], "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec, linux map[string]json.RawMessage
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := json.Unmarshal(spec["linux"], &linux); err != nil {
		return fmt.Errorf("%s: linux: %w", path, err)
	}
	if _, ok := linux["seccomp"]; !ok {
		return nil
	}
	delete(linux, "seccomp")
	if spec["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
