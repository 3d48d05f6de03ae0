package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

var configurationColumns = []column[view.Configuration]{
	{"NAMESPACE", false, func(c *view.Configuration) string { return c.Namespace }},
	{"NAME", false, func(c *view.Configuration) string { return c.Name }},
	{"HANDLER", false, func(c *view.Configuration) string { return c.Handler }},
	{"INSTANCES", false, func(c *view.Configuration) string { return strconv.Itoa(c.Instances) }},
	{"NODES", false, func(c *view.Configuration) string { return strconv.Itoa(c.Nodes) }},
	{"SLOTS", false, func(c *view.Configuration) string { return strconv.Itoa(c.Slots) }},
	{"FREE", false, func(c *view.Configuration) string { return strconv.Itoa(c.Free) }},
	{"HELD", false, func(c *view.Configuration) string { return strconv.Itoa(c.Held) }},
	{"WAITING", false, func(c *view.Configuration) string { return strconv.Itoa(c.Waiting) }},
	{"PROBLEM", false, func(c *view.Configuration) string { return first(c.Problems, 60) }},
}

var instanceColumns = []column[view.Instance]{
	{"NAME", false, func(i *view.Instance) string { return i.Name }},
	{"DEVICE", false, func(i *view.Instance) string { return short(i.Device, 60) }},
	{"SHARED", false, func(i *view.Instance) string { return strconv.FormatBool(i.Shared) }},
	{"NODES", false, func(i *view.Instance) string { return some(i.Nodes, 3) }},
	{"SLOTS", false, func(i *view.Instance) string { return strconv.Itoa(i.Slots) }},
	{"FREE", false, func(i *view.Instance) string { return strconv.Itoa(i.Free) }},
	{"HELD", false, func(i *view.Instance) string { return strconv.Itoa(i.Held) }},
	{"CONFIGURATION", true, func(i *view.Instance) string { return i.Namespace + "/" + i.Configuration }},
	{"LOST ON", true, func(i *view.Instance) string { return some(i.Lost, 3) }},
	{"PROBLEM", true, func(i *view.Instance) string { return first(i.Problems, 120) }},
}

func slotColumns(now time.Time) []column[view.Slot] {
	return []column[view.Slot]{
		{"SLOT", false, func(s *view.Slot) string { return s.Name }},
		{"STATE", false, func(s *view.Slot) string { return string(s.State) }},
		{"HOLDER", false, func(s *view.Slot) string { return s.Holder() }},
		{"CONTAINER", false, func(s *view.Slot) string { return s.Container }},
		{"NODE", false, func(s *view.Slot) string { return s.Node }},
		{"SINCE", false, func(s *view.Slot) string { return since(s.Since, now) }},
		{"LEVEL", true, func(s *view.Slot) string { return s.Level }},
		{"DEVICE", true, func(s *view.Slot) string { return short(s.Device, 60) }},
	}
}

var findingColumns = []column[view.Finding]{
	{"OBJECT", false, func(f *view.Finding) string { return f.Object }},
	{"PROBLEM", false, func(f *view.Finding) string { return f.Problem }},
}

func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(at))
}

// some names the first few.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s,+%d", strings.Join(names[:most], ","), len(names)-most)
}

func first(texts []string, most int) string {
	if len(texts) == 0 {
		return ""
	}
	text := short(texts[0], most)
	if len(texts) > 1 {
		text += fmt.Sprintf(" (+%d)", len(texts)-1)
	}
	return text
}

// short cuts the text to so many characters.
func short(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

func describePod(w io.Writer, p *view.Pod, now time.Time) {
	where := "no node yet"
	if p.Node != "" {
		where = "node " + p.Node
	}
	fmt.Fprintf(w, "Pod %s/%s: %s, %s\n", p.Namespace, p.Name, p.Phase, where)
	if len(p.Slots) > 0 {
		fmt.Fprintln(w, "\nIt has:")
		table(w, p.Slots, []column[view.Slot]{
			{"CONTAINER", false, func(s *view.Slot) string { return s.Container }},
			{"SLOT", false, func(s *view.Slot) string { return s.Name }},
			{"STATE", false, func(s *view.Slot) string { return string(s.State) }},
			{"SINCE", false, func(s *view.Slot) string { return since(s.Since, now) }},
			{"DEVICE", false, func(s *view.Slot) string { return short(s.Device, 60) }},
		}, true, true)
	}
	for _, wait := range p.Waits {
		fmt.Fprintf(w, "\nContainer %s waits for akri.sh/%s: %s.\n", wait.Container, wait.Resource, oneLine(wait.Why))
		if len(wait.Holders) > 0 {
			fmt.Fprintln(w, "These have what it asks for:")
			table(w, wait.Holders, slotColumns(now), false, true)
		}
	}
	for _, text := range p.Says {
		fmt.Fprintln(w, "\nSays", oneLine(text))
	}
	if len(p.Slots)+len(p.Waits)+len(p.Says) == 0 {
		fmt.Fprintln(w, "It neither has nor waits for a device of Kubeslot.")
	}
}

func describeNode(w io.Writer, n *view.Node, now time.Time) {
	fmt.Fprintf(w, "Node %s\n", n.Name)
	if !n.Reports {
		fmt.Fprintln(w, "It has no DeviceSlice: kubecri does not run there, or cannot reach the API server.")
	}
	for _, problem := range n.Problems {
		fmt.Fprintln(w, "Problem:", oneLine(problem))
	}
	if len(n.Instances) > 0 {
		fmt.Fprintln(w, "\nIt reaches:")
		table(w, n.Instances, instanceColumns, false, true)
	}
	if len(n.Slots) > 0 {
		fmt.Fprintln(w, "\nIts pods have:")
		table(w, n.Slots, slotColumns(now), false, true)
	}
}
