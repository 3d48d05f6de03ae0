package ledger

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kubeslot/kubeslot/types/slot"
)

// TestScenarios runs the stories in testdata/scenarios: one command after the other (see
// commands), each with its lines of input, and with its answer. The answer of a command that
// changes something ends with the event, if there is one: what waiting pods may have now.
//
// The command "given" is for what a story begins with. Its input are commands, one a line, with
// their own input behind a colon: "schedule pod=p node=a: one cam=1, two cam=1". It answers
// with what went wrong, and else with nothing.
//
// After each command the counts of the ledger are right, and a ledger of what the API has, as
// after a restart, is equal to it.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "given" {
				return short(s.given(t, d))
			}
			return short(s.run(newStep(t, d)))
		})
	})
}

// step is a command of a story, with its arguments and its input.
type step struct {
	*datadriven.TestData
	t              *testing.T
	name, ns, node string
	pod            Pod // its UID is its name, if no other is given
	slot           slot.Name
}

func newStep(t *testing.T, d *datadriven.TestData) step {
	c := step{TestData: d, t: t}
	c.name, c.ns, c.node = arg(c, "name", ""), arg(c, "ns", "default"), arg(c, "node", "")
	c.pod = Pod{Namespace: "default", Name: arg(c, "pod", ""), Priority: arg(c, "priority", int32(0)), Bound: arg(c, "since", int64(0))}
	c.pod.UID = arg(c, "uid", c.pod.Name)
	if c.HasArg("slot") {
		c.slot = c.parse(arg(c, "slot", ""))
	}
	return c
}

func (s *story) run(c step) string {
	command, known := commands[c.Cmd]
	if !known {
		c.Fatalf(c.t, "%s: there is no such command", c.FullCmd())
	}
	takes := strings.Fields(command.args)
	for _, a := range c.CmdArgs {
		if !slices.Contains(takes, a.Key) && !slices.Contains(takes, "["+a.Key+"]") {
			c.Fatalf(c.t, "%s: there is no argument %s", c.FullCmd(), a.Key)
		}
	}
	for _, name := range takes {
		if name[0] != '[' && !c.HasArg(name) {
			c.Fatalf(c.t, "%s: the argument %s is missing", c.FullCmd(), name)
		}
	}
	if command.lines == "" && c.Input != "" {
		c.Fatalf(c.t, "%s: the command takes no input", c.FullCmd())
	}
	answer := command.run(s, c)
	checkInvariants(c.t, s.Ledger)
	checkRebuilt(c.t, s.Ledger, s.rebuilt(), s.api.pods)
	return answer
}

// unexpected is what may go wrong in given commands.
var unexpected = regexp.MustCompile(`(?m)^(waits|cannot|error|conflict|left out|no victims help).*`)

func (s *story) given(t *testing.T, all *datadriven.TestData) string {
	var wrong []string
	for _, line := range lines(all.Input) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		command, input, _ := strings.Cut(line, ": ")
		name, args, err := datadriven.ParseLine(command)
		if err != nil {
			all.Fatalf(t, "%v", err)
		}
		d := &datadriven.TestData{Pos: all.Pos, Cmd: name, CmdArgs: args, Input: strings.ReplaceAll(input, ", ", "\n")}
		wrong = append(wrong, unexpected.FindAllString(s.run(newStep(t, d)), -1)...)
	}
	return strings.Join(wrong, "\n")
}

func lines(input string) []string {
	return strings.FieldsFunc(input, func(r rune) bool { return r == '\n' })
}

func arg[T any](c step, name string, fallback T) T {
	c.MaybeScanArgs(c.t, name, &fallback)
	return fallback
}

func (c step) parse(name string) slot.Name {
	n, err := slot.Parse(name)
	if err != nil {
		c.Fatalf(c.t, "%s: %v", c.FullCmd(), err)
	}
	n.Instance = full(n.Instance)
	return n
}

// labels reads "key:value" pairs.
func (c step) labels(name string) map[string]string {
	labels := map[string]string{}
	for _, pair := range arg(c, name, []string(nil)) {
		key, value, _ := strings.Cut(pair, ":")
		labels[key] = value
	}
	return labels
}

// request reads containers, one a line.
func (c step) request() *Request {
	req := &Request{Pod: c.pod}
	for _, line := range lines(c.Input) {
		words := strings.Fields(line)
		container := ContainerRequest{}
		switch words[0] {
		case "init":
			container.Role, words = Init, words[1:]
		case "sidecar":
			container.Role, words = Sidecar, words[1:]
		}
		container.Name = words[0]
		for _, w := range words[1:] {
			name, count, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(count)
			if err != nil {
				c.Fatalf(c.t, "%s: request %q: %v", c.FullCmd(), w, err)
			}
			container.Resources = append(container.Resources, ResourceRequest{Name: full(name), Count: n})
		}
		req.Containers = append(req.Containers, container)
	}
	return req
}

func show(a Assignment) string {
	var out []string
	for name, grants := range a {
		line := name + ":"
		for _, g := range grants {
			line += fmt.Sprintf(" %s/%d=%s", g.Resource, g.Ordinal, g.Slot)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
