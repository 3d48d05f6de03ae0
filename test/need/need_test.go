package need

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// ended notes how a test ends: by the first call.
type ended struct {
	testing.TB
	how string
}

func (e *ended) end(how string, why []any) {
	if e.how == "" {
		e.how = how + fmt.Sprint(why...)
	}
}

func (e *ended) Helper()          {}
func (e *ended) Skip(why ...any)  { e.end("skipped: ", why) }
func (e *ended) Fatal(why ...any) { e.end("failed: ", why) }

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	there := filepath.Join(dir, "there-a")
	if err := os.WriteFile(there, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	const why = "gone-a or gone-b is not installed: apt-get install gone"
	for ci, how := range map[string]string{"": "skipped: ", "false": "skipped: ", "true": "failed: "} {
		t.Setenv("CI", ci)
		e := &ended{}
		if path := Program(e, "apt-get install there", "gone-a", "there-a"); path != there || e.how != "" {
			t.Errorf("CI=%q: found %q, %s; want %s", ci, path, e.how, there)
		}
		if path := Program(e, "apt-get install gone", "gone-a", "gone-b"); path != "" || e.how != how+why {
			t.Errorf("CI=%q: found %q, %s; want %s%s", ci, path, e.how, how, why)
		}
	}
}
