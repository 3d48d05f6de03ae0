package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// maxQuoted is how many bytes of a plugin's words are quoted in a sentence.
const maxQuoted = 80

// checkInfo checks what a plugin says of itself.
func checkInfo(info *registration.PluginInfo, half registration.Half) error {
	if err := info.Check(); err != nil {
		return err
	}
	if info.GetHalf() != half {
		return fmt.Errorf("plugin %q says that it is half %s, and the sockets of this folder are half %s: "+
			"have it serve in the other half's folder", info.GetName(), info.GetHalf(), half)
	}
	if !slices.Contains(info.GetSupportedVersions(), v1alpha1.Version) {
		return fmt.Errorf("plugin %q serves the versions %q of the protocol, and %q is called here: "+
			"update the plugin or Kubeslot", info.GetName(),
			shorten(strings.Join(info.GetSupportedVersions(), " "), maxQuoted), v1alpha1.Version)
	}
	return nil
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
