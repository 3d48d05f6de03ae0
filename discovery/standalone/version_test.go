package standalone

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
)

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	status := run(t.Context(), []string{"handler", "--version"}, func(string) string { return "" }, &out,
		func(*pflag.FlagSet) discovery.Handler { return &debugecho.Handler{} })
	if status != 0 || !strings.HasPrefix(out.String(), "Kubeslot v") {
		t.Errorf("exit status %d: %s", status, out.String())
	}
}
