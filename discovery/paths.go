package discovery

import (
	"fmt"
	"path"
	"strings"
)

// tokens are where containers have the token of their ServiceAccount: /var/run is a link
// to /run in most images.
var tokens = []string{"/var/run/secrets/kubernetes.io/serviceaccount", "/run/secrets/kubernetes.io/serviceaccount"}

// CheckContainerPath returns an error for a place where no device may put a mount or a
// device node: it would replace what every container needs, and the runtime would refuse
// it, or start a container that is another than its author wrote. That a path is absolute
// is checked elsewhere.
func CheckContainerPath(containerPath string) error {
	clean := path.Clean("/" + containerPath)
	refuse := func(why string) error { return fmt.Errorf("containerPath %.64q: %s", containerPath, why) }
	switch {
	case clean == "/":
		return refuse("is the container's root")
	case clean == "/dev":
		return refuse("has all device nodes of the container; want a path below it")
	case clean == "/sys":
		return refuse("is the kernel's; want a path below it")
	case Within("/proc", clean):
		return refuse("is the kernel's")
	}
	for _, directory := range tokens {
		if Within(directory, clean) || Within(clean, directory) {
			return refuse("has, or is in, the directory of the container's ServiceAccount, " + directory)
		}
	}
	return nil
}

// Within reports whether the clean path is the directory or below it.
func Within(directory, path string) bool {
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}
