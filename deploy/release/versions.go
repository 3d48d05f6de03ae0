package release

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// place is where a file of the tree says the version of the release that it is of: each match
// of the pattern's group.
type place struct {
	file, pattern string
	// bare versions have no v, as those of charts.
	bare bool
}

const (
	// number is a version without its v.
	number = `(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)(?:-[a-z]+\.(?:0|[1-9][0-9]*))?`
	// requires is how a go.mod names the types of the same release.
	requires = `github\.com/kubeslot/kubeslot/types (v` + number + `)`
	// inCommand is how a page's commands name the images' version.
	inCommand = `(?:VERSION=|image\.tag=|-version )(v` + number + `)`
	// inCheck is what kubecri says of itself in a page's output.
	inCheck = `  kubecri (v` + number + `), kubelet`
	// onItsPage are the same on the page of releases, and tags.
	onItsPage = `(?:VERSION=|download |checkout |--sign |origin |types/|release/)(v` + number + `)`
)

var places = []place{
	{"deploy/helm/kubeslot/Chart.yaml", `(?m)^ *version: (\S+)$`, true},
	{"deploy/helm/kubeslot/Chart.yaml", `(?m)^appVersion: (\S+)$`, false},
	{"deploy/helm/kubeslot/charts/crds/Chart.yaml", `(?m)^version: (\S+)$`, true},
	{"go.mod", requires, false},
	{"kubedevice-api/go.mod", requires, false},
	{"test/perf/scheduler/go.mod", requires, false},
	{"test/e2e/modules_test.go", `const release = "(v` + number + `)"`, false},
	{"docs/import.md", "`types/(v" + number + ")`", false},
	{"docs/import.md", `github\.com/kubeslot/kubeslot/[^@\s]*@(v` + number + `)`, false},
	{"README.md", inCommand, false},
	{"docs/getting-started.md", inCommand, false},
	{"docs/helm.md", inCommand, false},
	{"docs/install.md", inCommand, false},
	{"docs/install.md", inCheck, false},
	{"docs/kubecri.md", inCheck, false},
	{"docs/versions.md", `Kubeslot (v` + number + `) \(commit`, false},
	{"deploy/kubeadm/patches/kube-scheduler0+strategic.yaml", `image: \S+:(v` + number + `)`, false},
	{"docs/kubectl.md", `(?:-version |/kubeslot/)(v` + number + `)`, false},
	{"docs/migrate-from-akri.md", inCommand, false},
	{"docs/release.md", onItsPage, false},
	{"docs/release.md", `kubeslot-(` + number + `)\.tgz`, true},
}

// CheckVersions finds what in the tree says another version than the release's.
func CheckVersions(root, version string) error {
	var errs []error
	err := eachPlace(root, version, func(file, text string, p *regexp.Regexp, want string) error {
		for _, m := range p.FindAllStringSubmatch(text, -1) {
			if m[1] != want {
				errs = append(errs, fmt.Errorf("%s says %s", file, m[1]))
			}
		}
		return nil
	})
	if len(errs) > 0 {
		const other = "the tree is of another version than %s: run `make release-version VERSION=%s`, and commit:\n%w"
		return fmt.Errorf(other, version, version, errors.Join(errs...))
	}
	return err
}

var version = regexp.MustCompile(`^v` + number + `$`)

// checkVersion takes versions that are tags of git, of images and, without the v, of charts.
func checkVersion(v string) error {
	if !version.MatchString(v) {
		return fmt.Errorf("version %q: want one such as v1.2.3 or v1.2.3-rc.1", v)
	}
	return nil
}

// SetVersion has the tree say the version.
func SetVersion(root, version string) error {
	if err := checkVersion(version); err != nil {
		return err
	}
	return eachPlace(root, version, func(file, text string, p *regexp.Regexp, want string) error {
		var out strings.Builder
		end := 0
		for _, m := range p.FindAllStringSubmatchIndex(text, -1) {
			out.WriteString(text[end:m[2]] + want)
			end = m[3]
		}
		out.WriteString(text[end:])
		return os.WriteFile(filepath.Join(root, file), []byte(out.String()), 0o644)
	})
}

// eachPlace calls the function for each place, of which each has a match.
func eachPlace(root, version string, do func(file, text string, p *regexp.Regexp, want string) error) error {
	for _, p := range places {
		text, err := os.ReadFile(filepath.Join(root, p.file))
		if err != nil {
			return err
		}
		pattern := regexp.MustCompile(p.pattern)
		if !pattern.Match(text) {
			return fmt.Errorf("%s says no version, as %s", p.file, p.pattern)
		}
		want := version
		if p.bare {
			want = strings.TrimPrefix(version, "v")
		}
		if err := do(p.file, string(text), pattern, want); err != nil {
			return err
		}
	}
	return nil
}
