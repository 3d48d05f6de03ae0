package deviceids

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// The files of testdata are scenarios: commands, each with what it is to print after
// "----" until an empty line. A line that begins with # is a comment.
//
//	configuration NAME capacity=N unique=Node|Container|Pod|none
//	instances INSTANCE...            all nodes see these
//	unseen NODE INSTANCE             but this node not this one
//	unusable NODE INSTANCE           or it gives no slots of it
//	usage [SLOT=VALUE]...            makes deviceUsage so; what is not named is free
//	list NODE                        each resource: capacity/allocatable, and its ids
//	prefer NODE RESOURCE N [+ID]... [ID]...   of the available ids, those with + chosen already
//	allocate NODE RESOURCE ID...     the slots of the ids, which become the node's
//	release SLOT...
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			newScenario(t).play(file, string(text))
		})
	}
}

type scenario struct {
	*testing.T
	configuration string
	unique        v0.UniqueScope
	capacity      int
	instances     []string
	unseen        map[string]bool // "node instance"
	unusable      map[string]bool
	usage         map[slot.Name]slot.Usage
}

func newScenario(t *testing.T) *scenario {
	return &scenario{T: t, unseen: map[string]bool{}, unusable: map[string]bool{}, usage: map[slot.Name]slot.Usage{}}
}

func (s *scenario) play(file, text string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		command := lines[i]
		if command == "" || strings.HasPrefix(command, "#") {
			continue
		}
		at := i + 1
		var want []string
		if i+1 < len(lines) && lines[i+1] == "----" {
			for i += 2; i < len(lines) && lines[i] != ""; i++ {
				want = append(want, lines[i])
			}
		}
		words := strings.Fields(command)
		got := strings.TrimSuffix(s.do(words[0], words[1:]), "\n")
		if text := strings.Join(want, "\n"); got != text {
			s.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", file, at, command, got, text)
		}
	}
}

func (s *scenario) do(command string, args []string) string {
	switch command {
	case "configuration":
		s.configuration = args[0]
		for _, arg := range args[1:] {
			name, value, _ := strings.Cut(arg, "=")
			switch name {
			case "capacity":
				s.capacity = number(s, value)
			case "unique":
				s.unique = v0.UniqueScope(strings.TrimSuffix(value, "none"))
			}
		}
	case "instances":
		s.instances = args
	case "unseen":
		s.unseen[args[0]+" "+args[1]] = true
	case "unusable":
		s.unusable[args[0]+" "+args[1]] = true
	case "usage":
		clear(s.usage)
		for _, arg := range args {
			name, value, _ := strings.Cut(arg, "=")
			usage, err := slot.ParseUsage(value)
			if err != nil {
				s.Fatal(err)
			}
			s.usage[s.slot(name)] = usage
		}
	case "list":
		text := list(s.configuration, s.resource(args[0], s.configuration))
		for _, name := range s.instances {
			text += list(name, s.resource(args[0], name))
		}
		return text
	case "prefer":
		var included, available []string
		for _, id := range args[3:] {
			if chosen, ok := strings.CutPrefix(id, "+"); ok {
				included, id = append(included, chosen), chosen
			}
			available = append(available, id)
		}
		ids, err := s.resource(args[0], args[1]).Prefer(available, included, number(s, args[2]))
		if err != nil {
			return "error: " + err.Error()
		}
		return strings.Join(ids, " ")
	case "allocate":
		r := s.resource(args[0], args[1])
		grants, err := r.Map(args[2:])
		if err != nil {
			return "error: " + err.Error()
		}
		text := ""
		for _, g := range grants {
			text += fmt.Sprintf("%s is %s", g.ID, g.Slot)
			if g.Held {
				text += ", held"
			}
			if g.Former != nil {
				text += fmt.Sprintf(", was %s", g.Former)
				delete(s.usage, *g.Former)
			}
			text += "\n"
			u := slot.Usage{Node: args[0]}
			if r.Level == v1alpha1.ConfigurationLevel {
				u.Holder = g.ID
			}
			s.usage[g.Slot] = u
		}
		return text
	case "release":
		for _, name := range args {
			delete(s.usage, s.slot(name))
		}
	default:
		s.Fatalf("no such command: %s", command)
	}
	return ""
}

func number(t *scenario, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *scenario) slot(text string) slot.Name {
	name, err := slot.Parse(text)
	if err != nil {
		s.Fatal(err)
	}
	return name
}

func (s *scenario) resource(node, name string) *Resource {
	if name != s.configuration {
		return &Resource{Name: name, Level: v1alpha1.InstanceLevel, Instances: []*Instance{s.instance(node, name)}}
	}
	r := &Resource{Name: name, Level: v1alpha1.ConfigurationLevel, Unique: s.unique}
	for _, name := range s.instances {
		r.Instances = append(r.Instances, s.instance(node, name))
	}
	return r
}

// instance is the Instance as the node knows it.
func (s *scenario) instance(node, name string) *Instance {
	in := &Instance{Name: name, Capacity: s.capacity, Usable: !s.unusable[node+" "+name], Others: map[int]string{}}
	if s.unseen[node+" "+name] {
		in.Capacity, in.Usable = 0, false
	}
	for held, u := range s.usage {
		switch {
		case held.Instance != name:
		case u.Node != node:
			in.Others[held.Index] = "claimed by node " + u.Node
		case u.Holder == "":
			in.Holds = append(in.Holds, Hold{Index: held.Index, ID: held.String(), Level: v1alpha1.InstanceLevel})
		default:
			in.Holds = append(in.Holds, Hold{Index: held.Index, ID: u.Holder, Level: v1alpha1.ConfigurationLevel})
		}
	}
	slices.SortFunc(in.Holds, func(a, b Hold) int { return a.Index - b.Index })
	return in
}

func list(name string, r *Resource) string {
	ids := r.List()
	healthy, text := 0, ""
	for _, d := range ids {
		if d.Healthy {
			healthy++
			text += " " + d.ID + ":H"
		} else {
			text += " " + d.ID + ":U"
		}
	}
	return fmt.Sprintf("%s %d/%d%s\n", name, len(ids), healthy, text)
}
