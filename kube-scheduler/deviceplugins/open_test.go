package deviceplugins

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/plugintest"
)

// example is the example plugin's scheduler half, built once: to link one takes
// seconds.
var example struct{ dir, file string }

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "deviceplugins")
	if err != nil {
		panic(err)
	}
	example.dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// folder returns a folder with the example plugin, and files of the given texts.
func folder(t *testing.T, texts map[string]string) string {
	t.Helper()
	if example.file == "" {
		file := filepath.Join(example.dir, "widget.so")
		plugintest.Build(t, file, "../../plugins/example/scheduler")
		example.file = file
	}
	dir := t.TempDir()
	if err := os.Symlink(example.file, filepath.Join(dir, "50-widget.so")); err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpen(t *testing.T) {
	registerMetrics()
	bad := map[string]string{"10-text.so": "not a plugin", "20-empty.so": "", "readme.txt": "not for us"}
	for name, test := range map[string]struct {
		options Options
		plugins int
		bad     int
		err     []string
	}{
		"the default folder is missing": {Options{}, 0, 0, nil},
		"a named folder is missing":     {Options{Folder: filepath.Join(t.TempDir(), "none")}, 0, 0, []string{"--devschedpath=", "is not a directory"}},
		"a file for a folder":           {Options{Folder: filepath.Join(folder(t, bad), "readme.txt")}, 0, 0, []string{"--devschedpath="}},
		"good":                          {Options{Folder: folder(t, nil)}, 1, 0, nil},
		"bad, refuse":                   {Options{Folder: folder(t, bad)}, 0, 2, []string{"10-text.so is not a shared object", "20-empty.so is empty", load.Rebuild, "--devsched-bad-plugins=skip"}},
		"bad, skip":                     {Options{Folder: folder(t, bad), Policy: load.Skip}, 1, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, client := context.Background(), fake.NewClientset()
			badFiles.Reset()
			plugins, err := open(ctx, client, test.options)
			if len(plugins) != test.plugins || (err != nil) != (len(test.err) > 0) {
				t.Fatal(plugins, err)
			}
			for _, want := range test.err {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if n, err := testutil.GetCounterMetricValue(badFiles.WithLabelValues(string(load.NotAPlugin))); err != nil || int(n) != test.bad {
				t.Errorf("%v bad files are counted, want %d; %v", n, test.bad, err)
			}
			if events := listEvents(t, client); len(events) != test.bad {
				t.Errorf("events %v, want %d", events, test.bad)
			}
			if test.bad == 0 {
				return
			}
			// Started again and again, it tells the same, not more.
			if _, again := open(ctx, client, test.options); (again != nil) != (err != nil) {
				t.Error(again)
			}
			events := listEvents(t, client)
			if len(events) != test.bad || events[0].Reason != "BadDevicePlugin" || events[0].Type != v1.EventTypeWarning ||
				!strings.Contains(events[0].Message, "-") || events[0].InvolvedObject.Name != "kube-scheduler" {
				t.Errorf("events %v, want %d", events, test.bad)
			}
		})
	}
}

func listEvents(t *testing.T, client *fake.Clientset) []v1.Event {
	t.Helper()
	list, err := client.CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestFlags(t *testing.T) {
	var o Options
	fs := pflag.NewFlagSet("kube-scheduler", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse([]string{"--devschedpath=/plugins", "--devsched-bad-plugins=skip"}); err != nil || o.Folder != "/plugins" || o.Policy != load.Skip {
		t.Errorf("%+v, %v", o, err)
	}
	if help := fs.FlagUsages(); !strings.Contains(help, "--devsched-bad-plugins refuse|skip") {
		t.Errorf("help %s", help)
	}
	if err := fs.Parse([]string{"--devsched-bad-plugins=maybe"}); err == nil {
		t.Error("a policy that there is not")
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "12345678": "12345678", "123456789": "12345…", "1234ääää": "1234…"} {
		if got := shorten(text, 8); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
