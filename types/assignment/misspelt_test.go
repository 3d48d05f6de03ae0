package assignment

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMisspelt(t *testing.T) {
	const asks = `{"requests":{"a/b":1}}`
	for _, test := range []struct {
		name, want string
		keys       []string
	}{
		{name: "none"},
		{name: "as it is", keys: []string{"KubeDevice/DeviceInfo"}},
		{name: "another case", keys: []string{"KubeDevice/Deviceinfo"}, want: "KubeDevice/Deviceinfo"},
		{name: "lower case", keys: []string{"kubedevice/deviceinfo"}, want: "kubedevice/deviceinfo"},
		{name: "one letter more", keys: []string{"KubeDevice/DeviceInfos"}, want: "KubeDevice/DeviceInfos"},
		{name: "one letter more in the prefix", keys: []string{"KubeDevices/DeviceInfo"}, want: "KubeDevices/DeviceInfo"},
		{name: "both and another case", keys: []string{"kubedevices/deviceinfos"}, want: "kubedevices/deviceinfos"},
		{name: "one letter less", keys: []string{"KubeDevic/DeviceInfo"}, want: "KubeDevic/DeviceInfo"},
		{name: "two letters swapped", keys: []string{"KubeDevice/DeviecInfo"}, want: "KubeDevice/DeviecInfo"},
		{name: "no slash", keys: []string{"KubeDeviceDeviceInfo"}, want: "KubeDeviceDeviceInfo"},
		{name: "three letters more", keys: []string{"KubeDevice/DeviceInfo-v2"}},
		{name: "other keys of the prefix", keys: []string{"KubeDevice/NodeInfo", "KubeDevice/Info", "KubeDevice/DeviceNode"}},
		{name: "other keys", keys: []string{"kubeslot.io/holder", "kubernetes.io/config.source", "DeviceInfo", "KubeDevice", ""}},
		{name: "beside the right one", keys: []string{"KubeDevice/DeviceInfo", "KubeDevice/Deviceinfo"}},
		{name: "the first of several", keys: []string{"kubedevice/deviceinfo", "KubeDevice/Deviceinfo", "example.com/x"}, want: "KubeDevice/Deviceinfo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			annotations := map[string]string{}
			for _, key := range test.keys {
				annotations[key] = asks
			}
			if got := Misspelt(annotations); got != test.want {
				t.Errorf("Misspelt is %q, want %q", got, test.want)
			}
			_, err := Input(annotations)
			if want := fmt.Sprintf(`unknown annotation key %q: rename or remove it; did you mean "KubeDevice/DeviceInfo"?`, test.want); test.want != "" && (err == nil || err.Error() != want) {
				t.Errorf("Input: %v, want %s", err, want)
			}
			if test.want == "" && err != nil {
				t.Errorf("Input: %v", err)
			}
			if info, err := DecodePod(annotations); test.want != "" && (info != nil || err != nil) {
				t.Errorf("DecodePod reads %v, %v of another key: nodes leave it alone", info, err)
			}
		})
	}
}

// No key that this project itself uses is taken for a misspelt one.
func TestOwnKeysAreNotMisspelt(t *testing.T) {
	root, path, found := "../..", regexp.MustCompile(`[A-Za-z0-9._-]+/[A-Za-z0-9._-]*[A-Za-z0-9]`), 0
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "_output" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || strings.HasSuffix(at, "_test.go") || filepath.Ext(at) != ".go" && filepath.Ext(at) != ".yaml":
			return nil
		}
		text, err := os.ReadFile(at)
		for _, key := range path.FindAllString(string(text), -1) {
			if key == Annotation {
				found++
			}
			if Misspelt(map[string]string{key: ""}) != "" {
				t.Errorf("%s: a pod with the annotation %s would be refused", at, key)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d keys %s in %s: %v", found, Annotation, root, err)
	}
}

func BenchmarkMisspelt(b *testing.B) {
	for name, key := range map[string]string{"other": "example.com/some-key-of-theirs-%04d", "as long as it": "example.com/long-%05d"} {
		annotations := map[string]string{}
		for i := range 10_000 {
			annotations[fmt.Sprintf(key, i)] = ""
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Misspelt(annotations)
			}
		})
	}
}
