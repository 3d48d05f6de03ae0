package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// readUnit returns the command line of a systemd service unit, so that the
// cluster starts our programs with exactly the arguments that deploy/ ships.
//
// It follows systemd.service(5): lines that end in "\" continue, words may be
// quoted, ${VAR} is part of its word, $VAR as a whole word is split at blanks,
// $$ is a dollar. Variables come from env, which stands for the unit's
// EnvironmentFile=, and then from the unit's own Environment=. A variable that
// neither sets is an error here, where systemd would silently leave it empty.
func readUnit(path string, env map[string]string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	argv, err := parseUnit(string(data), env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return argv, nil
}

func parseUnit(unit string, env map[string]string) ([]string, error) {
	vars := map[string]string{}
	var command string
	for _, s := range serviceSettings(unit) {
		switch s.key {
		case "Environment":
			words, err := splitWords(s.value)
			if err != nil {
				return nil, fmt.Errorf("Environment=%s: %w", s.value, err)
			}
			for _, w := range words {
				name, value, ok := strings.Cut(w, "=")
				if !ok {
					return nil, fmt.Errorf("Environment=: %q is no assignment", w)
				}
				vars[name] = value
			}
		case "ExecStart":
			command = s.value // an empty one resets, the last one counts
		}
	}
	if command == "" {
		return nil, errors.New("no ExecStart= in [Service]")
	}
	for name, value := range env {
		vars[name] = value
	}
	// What may precede the program: see "Special executable prefixes".
	words, err := splitWords(strings.TrimLeft(command, "-:+!"))
	if err != nil {
		return nil, fmt.Errorf("ExecStart=%s: %w", command, err)
	}
	argv, missing := expandWords(words, vars)
	if len(missing) > 0 {
		return nil, fmt.Errorf("ExecStart= uses %s, which the cluster does not set", strings.Join(missing, ", "))
	}
	return argv, nil
}

type setting struct{ key, value string }

// serviceSettings lists the assignments of section [Service], continued lines
// joined by a blank.
func serviceSettings(unit string) []setting {
	var settings []setting
	section, logical := "", ""
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // also between continued lines
		}
		if rest, ok := strings.CutSuffix(line, `\`); ok {
			logical += rest + " "
			continue
		}
		logical = strings.TrimSpace(logical + line)
		if strings.HasPrefix(logical, "[") {
			section = logical
		} else if key, value, ok := strings.Cut(logical, "="); ok && section == "[Service]" {
			settings = append(settings, setting{strings.TrimSpace(key), strings.TrimSpace(value)})
		}
		logical = ""
	}
	return settings
}

// splitWords splits at blanks outside quotes and undoes quotes and escapes.
func splitWords(line string) ([]string, error) {
	var words []string
	var current strings.Builder
	var quote byte
	inWord := false
	end := func() {
		if inWord {
			words = append(words, current.String())
		}
		current.Reset()
		inWord = false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			end()
		case c == '%':
			if i+1 == len(line) || line[i+1] != '%' {
				return nil, fmt.Errorf("specifier at %q is not supported, only %%%% is", line[i:])
			}
			i++
			current.WriteByte('%')
			inWord = true
		case c == '\\':
			if i+1 == len(line) {
				return nil, errors.New("ends in the middle of an escape")
			}
			i++
			escaped, ok := map[byte]byte{'\\': '\\', '"': '"', '\'': '\'', 's': ' ', 'n': '\n', 't': '\t'}[line[i]]
			if !ok {
				return nil, fmt.Errorf(`escape \%c is not supported`, line[i])
			}
			current.WriteByte(escaped)
			inWord = true
		default:
			current.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("quote %c is not closed", quote)
	}
	end()
	return words, nil
}

// expandWords replaces variables and names those that are not set.
func expandWords(words []string, vars map[string]string) (argv, missing []string) {
	value := func(name string) string {
		v, ok := vars[name]
		if !ok && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return v
	}
	for _, w := range words {
		name, bare := strings.CutPrefix(w, "$")
		if bare && isVariable(name) {
			argv = append(argv, strings.Fields(value(name))...)
			continue
		}
		argv = append(argv, expandBraces(w, value))
	}
	return argv, missing
}

// expandBraces replaces ${VAR} and $$; any other dollar stays.
func expandBraces(text string, value func(string) string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		if strings.HasPrefix(rest, "$$") {
			b.WriteByte('$')
			i++
			continue
		}
		if strings.HasPrefix(rest, "${") {
			if end := strings.IndexByte(rest, '}'); end > 0 && isVariable(rest[2:end]) {
				b.WriteString(value(rest[2:end]))
				i += end
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
