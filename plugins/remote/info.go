package remote

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// knownVersions are the versions of the protocol that this host calls, the newest first.
var knownVersions = []string{v1alpha1.Version}

// maxQuoted is how many bytes of a plugin's words are quoted in a sentence.
const maxQuoted = 80

// checkInfo checks what a plugin says of itself. It returns the version of the protocol to call.
func checkInfo(info *registration.PluginInfo, half registration.Half) (version string, err error) {
	if err := checkName(info.GetName()); err != nil {
		return "", err
	}
	if info.GetHalf() != half {
		return "", fmt.Errorf("plugin %q says that it is half %s, and the sockets of this folder are half %s: "+
			"have it serve in the other half's folder", info.GetName(), info.GetHalf(), half)
	}
	if err := checkSocket(info.GetSocket()); err != nil {
		return "", fmt.Errorf("plugin %q: %w", info.GetName(), err)
	}
	for _, version := range knownVersions {
		if slices.Contains(info.GetSupportedVersions(), version) {
			return version, nil
		}
	}
	return "", fmt.Errorf("plugin %q serves the versions %q of the protocol, and %q are called here: "+
		"update the plugin or Kubeslot", info.GetName(),
		shorten(strings.Join(info.GetSupportedVersions(), " "), maxQuoted),
		strings.Join(knownVersions, " "))
}

// checkSocket checks the name of the socket that a plugin leads to.
func checkSocket(name string) error {
	if name == "" || filepath.Base(name) == name && name != "." && name != ".." {
		return nil
	}
	return fmt.Errorf("it names the socket %q, which is not the name of a file in the same folder",
		shorten(name, maxQuoted))
}

// shorten returns the text on one line of at most this many bytes, and whatever a log can print.
func shorten(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
}

// errMoreNames is what a plugin gets that would be one too many.
var errMoreNames = errors.New("too many names of plugins were seen: restart this process to forget them")
