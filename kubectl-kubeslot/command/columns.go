package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// withNamespace puts the column of namespaces first when several are shown.
func withNamespace[T any](all bool, namespace func(*T) string, columns []column[T]) []column[T] {
	if !all {
		return columns
	}
	return append([]column[T]{{"NAMESPACE", false, namespace}}, columns...)
}

func configurationColumns(all bool) []column[view.Configuration] {
	type row = *view.Configuration
	return withNamespace(all, func(c row) string { return c.Namespace }, []column[view.Configuration]{
		{"NAME", false, func(c row) string { return c.Name }},
		{"HANDLER", false, func(c row) string { return c.Handler }},
		{"READY", false, func(c row) string { return strconv.FormatBool(c.Ready) }},
		{"INSTANCES", false, func(c row) string { return strconv.Itoa(c.Instances) }},
		{"NODES", false, func(c row) string { return strconv.Itoa(c.Nodes) }},
		{"SLOTS", false, func(c row) string { return strconv.Itoa(c.Slots) }},
		{"FREE", false, func(c row) string { return strconv.Itoa(c.Free) }},
		{"HELD", false, func(c row) string { return strconv.Itoa(c.Held) }},
		{"WAITING", false, func(c row) string { return strconv.Itoa(c.Waiting) }},
		{"PROBLEM", false, func(c row) string { return first(c.Problems, 60) }},
	})
}

func instanceColumns(all bool) []column[view.Instance] {
	type row = *view.Instance
	return withNamespace(all, func(i row) string { return i.Namespace }, []column[view.Instance]{
		{"NAME", false, func(i row) string { return i.Name }},
		{"DEVICE", false, func(i row) string { return short(i.Device, 60) }},
		{"SHARED", false, func(i row) string { return strconv.FormatBool(i.Shared) }},
		{"NODES", false, func(i row) string { return some(i.Nodes, 3) }},
		{"SLOTS", false, func(i row) string { return strconv.Itoa(i.Slots) }},
		{"FREE", false, func(i row) string { return strconv.Itoa(i.Free) }},
		{"HELD", false, func(i row) string { return strconv.Itoa(i.Held) }},
		{"CONFIGURATION", true, func(i row) string { return i.Configuration }},
		{"LOST ON", true, func(i row) string { return some(i.Lost, 3) }},
		{"PROBLEM", true, func(i row) string { return first(i.Problems, 120) }},
	})
}

func slotColumns(now func() time.Time, all bool) []column[view.Slot] {
	type row = *view.Slot
	return withNamespace(all, func(s row) string { return s.InstanceNamespace }, []column[view.Slot]{
		{"SLOT", false, func(s row) string { return s.Name }},
		{"STATE", false, func(s row) string {
			if s.BeyondCapacity {
				return string(s.State) + " (beyond capacity)"
			}
			return string(s.State)
		}},
		{"HOLDER", false, func(s row) string { return s.Holder() }},
		{"CONTAINER", false, func(s row) string { return s.Container }},
		{"NODE", false, func(s row) string {
			if s.Unreachable {
				return s.Node + " (not Ready)"
			}
			return s.Node
		}},
		{"LEVEL", false, func(s row) string { return s.Level }},
		{"SINCE", false, func(s row) string { return since(s.Since, now()) }},
		{"DEVICE", true, func(s row) string { return short(s.Device, 60) }},
		{"POD UID", true, func(s row) string { return s.PodUID }},
	})
}

func podColumns(now func() time.Time, all bool) []column[view.Pod] {
	type row = *view.Pod
	return withNamespace(all, func(p row) string { return p.Namespace }, []column[view.Pod]{
		{"NAME", false, func(p row) string { return p.Name }},
		{"STATE", false, func(p row) string { return string(p.State) }},
		{"SINCE", false, func(p row) string { return since(p.Since, now()) }},
		{"NODE", false, func(p row) string { return p.Node }},
		{"REQUESTS", false, func(p row) string { return requests(p.Requests, 2) }},
		{"SLOTS", false, func(p row) string { return strconv.Itoa(len(p.Slots)) }},
		{"REASON", false, func(p row) string { return reasons(p.Waits) }},
		{"MESSAGE", true, func(p row) string {
			if len(p.Waits) == 0 {
				return ""
			}
			return short(p.Waits[0].Why, 160)
		}},
	})
}

var advertisedColumns = []column[view.Advertised]{
	{"RESOURCE", false, func(a *view.Advertised) string { return a.Resource }},
	{"REACHED", false, func(a *view.Advertised) string { return strconv.Itoa(a.Reached) }},
	{"FREE", false, func(a *view.Advertised) string { return strconv.Itoa(a.Free) }},
	{"HELD HERE", false, func(a *view.Advertised) string { return strconv.Itoa(a.Held) }},
	{"ADVERTISED", false, func(a *view.Advertised) string { return strconv.FormatInt(a.Allocatable, 10) }},
}

var findingColumns = []column[view.Finding]{
	{"OBJECT", false, func(f *view.Finding) string { return f.Object }},
	{"REASON", false, func(f *view.Finding) string { return f.Reason }},
	{"PROBLEM", false, func(f *view.Finding) string { return f.Problem }},
}

// requests names what is asked for, such as akri.sh/cameras:2.
func requests(all []view.Asked, most int) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, fmt.Sprintf("%s:%d", a.Resource, a.Count))
	}
	return some(texts, most)
}

// reasons names each reason once.
func reasons(waits []view.Wait) string {
	var all []string
	seen := map[string]bool{}
	for _, w := range waits {
		if !seen[w.Reason] {
			seen[w.Reason] = true
			all = append(all, w.Reason)
		}
	}
	return strings.Join(all, ",")
}

func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(at)))
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
