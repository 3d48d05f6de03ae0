package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"plugin"
	"strings"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/types/contain"
)

// Policy says what to do about a bad file. It is a pflag.Value.
type Policy string

const (
	// Refuse loads nothing if one file is bad: the binary should not start. A
	// scheduler without one of its plugins would give its devices out unseen.
	Refuse Policy = "refuse"
	// Skip loads the others.
	Skip Policy = "skip"
)

// String returns the policy; that of the zero value is Refuse.
func (p *Policy) String() string {
	if *p == "" {
		return string(Refuse)
	}
	return string(*p)
}

// Set takes "refuse" or "skip".
func (p *Policy) Set(s string) error {
	switch Policy(s) {
	case Refuse, Skip:
		*p = Policy(s)
		return nil
	}
	return fmt.Errorf("%q is neither %q nor %q", s, Refuse, Skip)
}

// Type is shown in a flag's help.
func (p *Policy) Type() string { return "refuse|skip" }

// Options of loading; the zero value is good.
type Options struct {
	Policy Policy
	// Timeout is how long a plugin's own code may take to begin: its packages'
	// init, its factory, and GetName. 0 means a minute.
	Timeout time.Duration
}

// Plugin is a loaded plugin.
type Plugin[T any] struct {
	Name  string
	File  string
	Value T
}

// FileError is all that is wrong with one file.
type FileError struct {
	File     string
	Findings []Finding
}

// Error lists the findings and says how to rebuild the plugin, if that helps.
func (e *FileError) Error() string {
	texts := make([]string, 0, len(e.Findings))
	rebuild := ""
	for _, f := range e.Findings {
		texts = append(texts, f.Text)
		switch f.Reason {
		case NotAPlugin, WrongBuild, WrongPackages, WrongFactory:
			rebuild = ". " + Rebuild
		}
	}
	return fmt.Sprintf("plugin %s %s%s", e.File, strings.Join(texts, "; "), rebuild)
}

// Rebuild is what helps with most that is wrong.
const Rebuild = "To rebuild it, run in the source that this binary was built from: make plugin-builder PLUGIN=<the plugin's source directory>"

// Files returns the folder's *.so files in the order of their names. A folder
// that does not exist has none.
func Files(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the plugins: %w", err)
	}
	var files []string
	for _, e := range entries { // sorted by name
		if strings.HasSuffix(e.Name(), ".so") {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files, nil
}

// Directory loads the directory's plugins, in the order of the files' names.
//
// It returns the plugins and what is wrong with each bad file. With policy
// Refuse it returns no plugins if a file is bad, and then, or if the directory
// cannot be read, an error. Files that are bad on sight keep all from being
// opened under Refuse; what a plugin's own code did before another one failed
// cannot be undone, for Go cannot unload it.
func Directory[T interface{ GetName() string }](folder string, kind Kind[T], o Options) ([]Plugin[T], []*FileError, error) {
	files, err := Files(folder)
	if err != nil || len(files) == 0 {
		return nil, nil, err
	}
	return load(files, kind, o)
}

// loading keeps two loads from checking against a host that the other changes.
var loading sync.Mutex

func load[T interface{ GetName() string }](files []string, kind Kind[T], o Options) ([]Plugin[T], []*FileError, error) {
	loading.Lock()
	defer loading.Unlock()
	h, err := self()
	if err != nil {
		h = nil
	}
	var bad []*FileError
	if o.Policy != Skip {
		if _, bad = checkAll(h, err, files, kind.Factory); len(bad) > 0 {
			return nil, bad, refusal(bad)
		}
	}
	var plugins []Plugin[T]
	for _, file := range files {
		real, hashes, findings := checkOne(h, err, file, kind.Factory)
		if len(findings) == 0 {
			var p *Plugin[T]
			p, findings = open(file, real, kind, o.Timeout)
			h = h.with(file, hashes) // also if its code then failed
			if len(findings) == 0 {
				findings = sameName(plugins, p)
			}
			if len(findings) == 0 {
				plugins = append(plugins, *p)
			}
		}
		if len(findings) > 0 {
			bad = append(bad, &FileError{File: file, Findings: findings})
		}
	}
	if o.Policy != Skip && len(bad) > 0 {
		return nil, bad, refusal(bad)
	}
	return plugins, bad, nil
}

// checkAll checks the files as if they were loaded in this order. It returns
// the host as it then would be.
func checkAll(h *host, hostErr error, files []string, factory string) (*host, []*FileError) {
	var bad []*FileError
	for _, file := range files {
		_, hashes, findings := checkOne(h, hostErr, file, factory)
		if len(findings) > 0 {
			bad = append(bad, &FileError{File: file, Findings: findings})
		} else {
			h = h.with(file, hashes)
		}
	}
	return h, bad
}

func checkOne(h *host, hostErr error, file, factory string) (string, map[string]string, []Finding) {
	if hostErr != nil {
		return "", nil, []Finding{{NoHost, "cannot be loaded: " + hostErr.Error()}}
	}
	return h.check(file, factory)
}

func refusal(bad []*FileError) error {
	errs := make([]error, 0, len(bad))
	for _, b := range bad {
		errs = append(errs, b)
	}
	return errors.Join(errs...)
}

const defaultTimeout = time.Minute

// open runs the plugin's code for the first time.
func open[T interface{ GetName() string }](file, real string, kind Kind[T], timeout time.Duration) (*Plugin[T], []Finding) {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	type opened struct {
		plugin  *Plugin[T]
		finding *Finding
	}
	got, err := contain.Do(timeout, func() (opened, error) {
		p, err := plugin.Open(real)
		if err != nil {
			return opened{finding: cannotOpen(err)}, nil
		}
		create, finding := kind.factory(p)
		if finding != nil {
			return opened{finding: finding}, nil
		}
		v, err := create()
		if err != nil {
			return opened{}, fmt.Errorf("%s: %w", kind.Factory, err)
		}
		if any(v) == nil {
			return opened{}, fmt.Errorf("%s returned neither a plugin nor an error", kind.Factory)
		}
		name := v.GetName()
		if name == "" {
			return opened{}, errors.New("GetName returned no name")
		}
		return opened{plugin: &Plugin[T]{Name: name, File: file, Value: v}}, nil
	}, nil)
	switch {
	case err != nil:
		return nil, []Finding{{Failed, fmt.Sprintf("failed when it began: %v", err)}}
	case got.finding != nil:
		return nil, []Finding{*got.finding}
	}
	return got.plugin, nil
}

// cannotOpen explains what the checks did not foresee.
func cannotOpen(err error) *Finding {
	if strings.Contains(err.Error(), "plugin already loaded") {
		return &Finding{Duplicate, "is a copy of a plugin that is loaded already: remove one of the two files"}
	}
	return &Finding{WrongPackages, fmt.Sprintf("cannot be opened: %v", err)}
}

func sameName[T any](plugins []Plugin[T], p *Plugin[T]) []Finding {
	for _, other := range plugins {
		if other.Name == p.Name {
			return []Finding{{Duplicate, fmt.Sprintf("has the name %q, as %s has: remove one of the two files", p.Name, other.File)}}
		}
	}
	return nil
}
