package kubeletargs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const endpointField = "containerRuntimeEndpoint"

// InstanceConfig is kubeadm's since 1.34: it is merged over the kubelet's config.yaml by each join and
// upgrade (NodeLocalCRISocket).
const InstanceConfig = "/var/lib/kubelet/instance-config.yaml"

var (
	// fieldLine is the field in YAML as kubeadm and people write it: name, blanks, the
	// value, perhaps in quotes, and what follows it.
	fieldLine = regexp.MustCompile(`(?m)^(containerRuntimeEndpoint[ \t]*:)([ \t]*)("[^"\r\n]*"|'[^'\r\n]*'|[^\s#"']*)([^\r\n]*)(\r?\n?)`)
	// fieldMember is the field in JSON, which is YAML too.
	fieldMember = regexp.MustCompile(`("containerRuntimeEndpoint"[ \t]*:[ \t]*")([^"\r\n]*)"`)
	// flag is the kubelet's flag in an environment file or a unit. What quotes the
	// value, or the whole list of flags, ends it.
	flag = regexp.MustCompile(`(--container[-_]runtime[-_]endpoint(?:=|[ \t]+)["']?)([^\s"'\\]+)`)
)

// Field returns the containerRuntimeEndpoint of a file of the kubelet's
// configuration, or of kubeadm's instance-config.yaml, which is a part of one; ""
// when it has none or an empty one.
func Field(text string) (string, error) {
	fields, err := parseFields(text)
	if err != nil {
		return "", err
	}
	value, _ := fields[endpointField].(string)
	return value, nil
}

// SetField returns the file with another containerRuntimeEndpoint, "" for none. All
// else stays as it is, comments and quotes too: set back, the file is what it was. It
// is an error when that cannot be had.
func SetField(text, endpoint string) (string, error) {
	before, err := parseFields(text)
	if err != nil {
		return "", err
	}
	changed := text
	switch {
	case fieldLine.MatchString(text):
		changed = setLine(text, endpoint)
	case fieldMember.MatchString(text):
		changed = fieldMember.ReplaceAllString(text, "${1}"+strings.ReplaceAll(endpoint, "$", "$$")+`"`)
	case endpoint != "":
		if text != "" && !strings.HasSuffix(text, "\n") {
			changed += "\n"
		}
		changed += endpointField + ": " + endpoint + "\n"
	}
	after, err := parseFields(changed)
	if err == nil {
		value, _ := after[endpointField].(string)
		delete(before, endpointField)
		delete(after, endpointField)
		if value == endpoint && reflect.DeepEqual(before, after) {
			return changed, nil
		}
	}
	return "", fmt.Errorf("%s stands in a form that this cannot change: set it to %q by hand", endpointField, endpoint)
}

// setLine sets the field in its line. A value that is not in quotes goes with its line
// when there is to be none.
func setLine(text, endpoint string) string {
	m := fieldLine.FindStringSubmatchIndex(text)
	group := func(i int) string { return text[m[2*i]:m[2*i+1]] }
	blanks, value := group(2), group(3)
	if blanks == "" {
		blanks = " "
	}
	line := ""
	switch {
	case value != "" && strings.ContainsAny(value[:1], `"'`):
		line = group(1) + blanks + value[:1] + endpoint + value[:1] + group(4) + group(5)
	case endpoint != "":
		line = group(1) + blanks + endpoint + group(4) + group(5)
	}
	return text[:m[0]] + line + text[m[1]:]
}

func parseFields(text string) (map[string]any, error) {
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	return fields, nil
}

// Flag returns the value of --container-runtime-endpoint in the text of a systemd
// unit or of an environment file; "" when it is not there. Comments do not count; of
// several the last one does.
func Flag(text string) string {
	value := ""
	for line := range strings.Lines(text) {
		if !comment(line) {
			for _, match := range flag.FindAllStringSubmatch(line, -1) {
				value = match[2]
			}
		}
	}
	return value
}

// SetFlag returns the text with another value of --container-runtime-endpoint
// wherever it is given.
func SetFlag(text, endpoint string) string {
	var changed strings.Builder
	for line := range strings.Lines(text) {
		if !comment(line) {
			line = flag.ReplaceAllString(line, "${1}"+strings.ReplaceAll(endpoint, "$", "$$"))
		}
		changed.WriteString(line)
	}
	return changed.String()
}

// comment reports whether a line of a unit or an environment file is one.
func comment(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";")
}

// ReadField is Field of a file; "" when it is not there.
func ReadField(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	endpoint, err := Field(string(data))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return endpoint, nil
}
