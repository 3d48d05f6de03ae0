package npm

import (
	"strings"
	"testing"
)

func TestWantsExactVersions(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", "") // so that nothing is installed
	for spec, want := range map[string]string{
		"onvif@0.8.3": "is not installed", "@grpc/grpc-js@1.13.4": "is not installed", "a@1.0.0-rc.1": "is not installed",
		"onvif": "want <name>@<version>", "onvif@latest": "want <name>@<version>", "@grpc/grpc-js": "want <name>@<version>", "onvif@^0.8.3": "want <name>@<version>",
	} {
		if _, err := install([]string{spec}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("install(%q): %v, want an error with %q", spec, err, want)
		}
	}
}
