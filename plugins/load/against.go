package load

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// Against says what keeps another binary than this one from loading the plugin:
// what that binary would say itself. It is for those who build plugins.
func Against(binary, plugin, factory string) ([]Finding, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the binary that is to load the plugin: %w", err)
	}
	h, err := readHost(binary, info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	_, _, findings := h.check(plugin, factory)
	return findings, nil
}

// FactoryOf returns which of the two factories the plugin exports, "" if none.
func FactoryOf(plugin string) (string, error) {
	file, f, _, err := openELF(plugin)
	if err != nil {
		return "", fmt.Errorf("read plugin %s: %w", plugin, err)
	}
	defer file.Close()
	_, functions, err := dynamicSymbols(f)
	if err != nil {
		return "", fmt.Errorf("read plugin %s: %w", plugin, err)
	}
	for _, factory := range factories {
		if exports(functions, factory) {
			return factory, nil
		}
	}
	return "", nil
}

func exports(functions []string, factory string) bool {
	return slices.ContainsFunc(functions, func(name string) bool { return strings.HasSuffix(name, "."+factory) })
}

// checkModules names the modules of which the plugin has another version: the
// usual cause of packages that differ, and what its author can change.
func (h *host) checkModules(info *debug.BuildInfo) []Finding {
	has := map[string]string{}
	for _, m := range h.info.Deps {
		has[m.Path] = version(m)
	}
	var differ []string
	for _, m := range info.Deps {
		if want, ok := has[m.Path]; ok && want != version(m) {
			differ = append(differ, fmt.Sprintf("%s %s, not %s", m.Path, version(m), want))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return []Finding{{WrongPackages, "was built with other versions of modules: " + strings.Join(differ, ", ")}}
}

func version(m *debug.Module) string {
	if m.Replace != nil {
		return strings.TrimSpace(strings.TrimPrefix(m.Replace.Path+" ", m.Path+" ") + m.Replace.Version)
	}
	return m.Version
}
