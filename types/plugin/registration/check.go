package registration

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// CheckName checks the form of a plugin's name, which registration.proto gives.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%.64q is not a plugin's name: 1 to 63 lower-case letters, digits, '-' and '.', "+
			"with a letter or digit first and last", name)
	}
	return nil
}

// Check checks what a plugin says of itself that serves in the half's folder, and whether it serves the
// version of the protocol.
func (i *PluginInfo) Check(half Half, version string) error {
	if err := CheckName(i.GetName()); err != nil {
		return err
	}
	switch s := i.GetSocket(); {
	case s != "" && (filepath.Base(s) != s || s == "." || s == ".."):
		return fmt.Errorf("plugin %q: it names the socket %.64q, which is not the name of a file in the same folder",
			i.GetName(), s)
	case i.GetHalf() != half:
		return fmt.Errorf("plugin %q says that it is half %s, and the sockets of this folder are half %s: "+
			"have it serve in the other half's folder", i.GetName(), i.GetHalf(), half)
	case !slices.Contains(i.GetSupportedVersions(), version):
		return fmt.Errorf("plugin %q serves the versions %.80q of the protocol, and %q is called here: "+
			"update the plugin or Kubeslot", i.GetName(), strings.Join(i.GetSupportedVersions(), " "), version)
	}
	return nil
}
