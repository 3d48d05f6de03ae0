package registration

import (
	"fmt"
	"path/filepath"
	"regexp"
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

// Check checks the name, and that of the socket.
func (i *PluginInfo) Check() error {
	if err := CheckName(i.GetName()); err != nil {
		return err
	}
	if s := i.GetSocket(); s != "" && (filepath.Base(s) != s || s == "." || s == "..") {
		return fmt.Errorf("plugin %q: it names the socket %.64q, which is not the name of a file in the same folder",
			i.GetName(), s)
	}
	return nil
}
