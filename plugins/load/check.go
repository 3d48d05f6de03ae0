package load

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Reason is the kind of a finding: a metric's label, so that there are few.
type Reason string

// What can be wrong with a plugin.
const (
	Unreadable    Reason = "unreadable"     // no such file, no regular file, no permission
	Untrusted     Reason = "untrusted"      // others can write the file or its folder
	NotAPlugin    Reason = "not-a-plugin"   // a text, a C library, a Go program, half a plugin
	WrongBuild    Reason = "wrong-build"    // other toolchain or flags
	WrongPackages Reason = "wrong-packages" // other versions of shared packages
	WrongFactory  Reason = "wrong-factory"  // none, or of another type
	Failed        Reason = "failed"         // the plugin's own code failed
	Duplicate     Reason = "duplicate"      // another plugin has its name
	NoHost        Reason = "no-host"        // this binary cannot load any plugin
)

// Reasons are all reasons, to begin a metric's label set with zeros.
func Reasons() []Reason {
	return []Reason{Unreadable, Untrusted, NotAPlugin, WrongBuild, WrongPackages, WrongFactory, Failed, Duplicate, NoHost}
}

// Finding is one thing that is wrong with a file.
type Finding struct {
	Reason Reason
	Text   string // without the file's name
}

// check says what is wrong with the file, as far as that can be known without
// running it. It returns the file's real path and its packages' hashes as well.
func (h *host) check(path, factory string) (real string, hashes map[string]string, findings []Finding) {
	// debug/elf is careful, but not made for files that mean harm.
	defer func() {
		if v := recover(); v != nil {
			findings = append(findings, Finding{NotAPlugin, fmt.Sprintf("is damaged: reading it panics: %v", v)})
		}
	}()
	real, findings = checkTrust(path)
	if real == "" {
		return real, nil, findings
	}
	file, f, size, err := openELF(real)
	if err != nil {
		return real, nil, append(findings, unreadable(real, err, size))
	}
	defer file.Close()
	if bad, ok := checkELF(f, size); !ok {
		return real, nil, append(findings, bad)
	}
	info, err := buildinfo.Read(file)
	if err != nil {
		return real, nil, append(findings, Finding{NotAPlugin, "was not built by Go, or was stripped of what Go writes: is it a C library?"})
	}
	hashes, functions, err := dynamicSymbols(f)
	if err != nil {
		return real, nil, append(findings, Finding{NotAPlugin, fmt.Sprintf("is damaged: %v", err)})
	}
	if len(hashes) == 0 {
		mode := setting(info, "-buildmode")
		return real, nil, append(findings, Finding{NotAPlugin,
			fmt.Sprintf("is Go code built with -buildmode=%s, not with -buildmode=plugin", mode)})
	}
	findings = append(findings, h.checkBuild(info)...)
	findings = append(findings, h.checkPackages(info, hashes)...)
	if !exports(functions, factory) {
		text := fmt.Sprintf("has no function %s in its package main", factory)
		for _, other := range factories {
			if other != factory && exports(functions, other) {
				text += fmt.Sprintf("; it has %s, so it belongs into the other binary's directory", other)
			}
		}
		findings = append(findings, Finding{WrongFactory, text})
	}
	return real, hashes, findings
}

func unreadable(path string, err error, size int64) Finding {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		return Finding{Unreadable, fmt.Sprintf("cannot be read: %v", err)}
	}
	if size == 0 {
		return Finding{NotAPlugin, "is empty"}
	}
	if file, err := os.Open(path); err == nil {
		defer file.Close()
		magic := make([]byte, len(elf.ELFMAG))
		if n, _ := io.ReadFull(file, magic); !strings.HasPrefix(elf.ELFMAG, string(magic[:n])) {
			return Finding{NotAPlugin, "is not a shared object (an ELF file)"}
		}
	}
	return Finding{NotAPlugin, fmt.Sprintf("is cut short or damaged: %v", err)}
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64,
	"386": elf.EM_386, "arm": elf.EM_ARM, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390}

// checkELF tells whether the file is a whole shared object for this machine.
// A file that was cut short would kill the process when a missing page is read.
func checkELF(f *elf.File, size int64) (Finding, bool) {
	if want, ok := machines[runtime.GOARCH]; ok && f.Machine != want {
		return Finding{NotAPlugin, fmt.Sprintf("is for %s, and this machine is %s", f.Machine, runtime.GOARCH)}, false
	}
	if f.Type != elf.ET_DYN {
		return Finding{NotAPlugin, fmt.Sprintf("is no shared object but of type %s", f.Type)}, false
	}
	for _, p := range f.Progs {
		if p.Filesz > 0 && (p.Off > uint64(size) || p.Filesz > uint64(size)-p.Off) {
			return Finding{NotAPlugin, "is cut short: copy it again"}, false
		}
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.FileSize > 0 && (s.Offset > uint64(size) || s.FileSize > uint64(size)-s.Offset) {
			return Finding{NotAPlugin, "is cut short: copy it again"}, false
		}
	}
	return Finding{}, true
}

// checkBuild compares what must be the same whatever the packages are.
func (h *host) checkBuild(info *debug.BuildInfo) []Finding {
	var findings []Finding
	if info.GoVersion != h.info.GoVersion {
		findings = append(findings, Finding{WrongBuild, fmt.Sprintf("was built with %s, this binary with %s", info.GoVersion, h.info.GoVersion)})
	}
	for _, key := range []string{"-trimpath", "-race", "-msan", "-asan"} {
		findings = append(findings, h.checkSetting(info, key)...)
	}
	return findings
}

func (h *host) checkSetting(info *debug.BuildInfo, key string) []Finding {
	have, want := setting(info, key), setting(h.info, key)
	if have == want {
		return nil
	}
	return []Finding{{WrongBuild, fmt.Sprintf("was built %s, this binary %s", flag(key, have), flag(key, want))}}
}

func flag(key, value string) string {
	switch value {
	case "":
		return "without " + key
	case "true":
		return "with " + key
	default:
		return "with " + key + "=" + value
	}
}

// checkPackages names every shared package that is not the same. Flags that
// change some packages and not others are named only if there is one.
func (h *host) checkPackages(info *debug.BuildInfo, hashes map[string]string) []Finding {
	differ := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		if has, shared := h.packages[name]; shared && has.hash != hashes[name] {
			differ[has.from] = append(differ[has.from], name)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	findings := h.checkModules(info)
	for _, key := range []string{"CGO_ENABLED", "-tags", "-gcflags", "-asmflags", "GOAMD64", "GOARM64", "GOEXPERIMENT"} {
		findings = append(findings, h.checkSetting(info, key)...)
	}
	for _, from := range slices.Sorted(maps.Keys(differ)) {
		whose := "this binary"
		if from != "" {
			whose = "plugin " + from
		}
		names := differ[from]
		findings = append(findings, Finding{WrongPackages,
			fmt.Sprintf("%d packages are not those of %s: %s", len(names), whose, strings.Join(names, ", "))})
	}
	return findings
}
