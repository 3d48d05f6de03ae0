package load

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// hashPrefix begins the names of the dynamic symbols by which the Go linker
// lets plugins and their host compare the packages that they share.
const hashPrefix = "go:link.pkghashbytes."

// host is the binary that plugins are loaded into.
type host struct {
	info *debug.BuildInfo
	// packages has the hash of each package that is loaded.
	packages map[string]loadedPackage
}

// loadedPackage is a package that a plugin has to match.
type loadedPackage struct {
	hash string
	from string // the plugin that brought it; "" is the binary itself
}

// self reads this process's binary: once, and only when there is a plugin to
// compare it with.
var self = sync.OnceValues(func() (*host, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, errors.New("this binary has no build information: build it with `make build`")
	}
	// Not by name: the file may have been replaced since.
	h, err := readHost("/proc/self/exe", info)
	if err != nil {
		return nil, fmt.Errorf("this binary: %w", err)
	}
	return h, nil
})

// readHost reads the binary of which info is the build information.
func readHost(binary string, info *debug.BuildInfo) (*host, error) {
	f, err := elf.Open(binary)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	defer f.Close()
	hashes, _, err := dynamicSymbols(f)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if len(hashes) == 0 {
		return nil, errors.New("it cannot load plugins: it was built without cgo. Build it with `make build`, with gcc installed and CGO_ENABLED not 0")
	}
	h := &host{info: info, packages: make(map[string]loadedPackage, len(hashes))}
	for name, hash := range hashes {
		h.packages[name] = loadedPackage{hash: hash}
	}
	return h, nil
}

// with returns the host after a plugin was loaded: packages that it brought are
// there to stay, and plugins after it have to match them too.
func (h *host) with(file string, hashes map[string]string) *host {
	next := &host{info: h.info, packages: make(map[string]loadedPackage, len(h.packages)+len(hashes))}
	for name, hash := range hashes {
		next.packages[name] = loadedPackage{hash: hash, from: file}
	}
	for name, p := range h.packages {
		next.packages[name] = p
	}
	return next
}

// setting returns a build setting, such as -trimpath; "" if it was not given.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// dynamicSymbols returns the hash of each Go package in the file, and the names
// of the functions that it exports.
func dynamicSymbols(f *elf.File) (hashes map[string]string, functions []string, err error) {
	symbols, err := f.DynamicSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	hashes = map[string]string{}
	for _, s := range symbols {
		name, isHash := strings.CutPrefix(s.Name, hashPrefix)
		switch {
		case isHash && s.Section != elf.SHN_UNDEF:
			if hashes[name], err = symbolBytes(f, s); err != nil {
				return nil, nil, fmt.Errorf("symbol %s: %w", s.Name, err)
			}
		case elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF:
			functions = append(functions, s.Name)
		}
	}
	return hashes, functions, nil
}

// maxHash bounds what is read for a hash; Go's have 20 to 32 bytes.
const maxHash = 256

func symbolBytes(f *elf.File, s elf.Symbol) (string, error) {
	if int(s.Section) >= len(f.Sections) || s.Size == 0 || s.Size > maxHash {
		return "", errors.New("damaged")
	}
	section := f.Sections[s.Section]
	if section.Type == elf.SHT_NOBITS || s.Value < section.Addr {
		return "", errors.New("damaged")
	}
	b := make([]byte, s.Size)
	if _, err := section.ReadAt(b, int64(s.Value-section.Addr)); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(b), nil
}

// openELF opens a file and returns its size with it, so that both are of one file.
func openELF(path string) (*os.File, *elf.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, 0, err
	}
	stat, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, nil, 0, err
	}
	f, err := elf.NewFile(file)
	if err != nil {
		file.Close()
		return nil, nil, stat.Size(), err
	}
	return file, f, stat.Size(), nil
}
