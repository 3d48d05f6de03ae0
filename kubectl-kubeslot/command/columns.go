package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// maxProblem is how much of a problem a list shows: a terminal breaks it, and it may be of a node's making.
const maxProblem = 240

// withNamespace puts the column of namespaces first when several are shown.
func withNamespace[T any](all bool, namespace func(*T) string, columns []column[T]) []column[T] {
	if !all {
		return columns
	}
	return append([]column[T]{{"NAMESPACE", wordColumn, namespace}}, columns...)
}

func configurationColumns(all bool) []column[view.Configuration] {
	type row = *view.Configuration
	return withNamespace(all, func(c row) string { return c.Namespace }, []column[view.Configuration]{
		{"NAME", wordColumn, func(c row) string { return c.Name }},
		{"HANDLER", wordColumn, func(c row) string { return c.Handler }},
		{"READY", wordColumn, func(c row) string { return strconv.FormatBool(c.Ready) }},
		{"INSTANCES", wordColumn, func(c row) string { return strconv.Itoa(c.Instances) }},
		{"NODES", wordColumn, func(c row) string { return strconv.Itoa(c.Nodes) }},
		{"SLOTS", wordColumn, func(c row) string { return strconv.Itoa(c.Slots) }},
		{"FREE", wordColumn, func(c row) string { return strconv.Itoa(c.Free) }},
		{"ASSIGNED", wordColumn, func(c row) string { return strconv.Itoa(c.Assigned) }},
		{"HELD", wordColumn, func(c row) string { return strconv.Itoa(c.Held) }},
		{"WAITING", wordColumn, func(c row) string { return strconv.Itoa(c.Waiting) }},
		{"ALLOCATOR", wideColumn, func(c row) string { return string(c.Allocator) }},
		{"PROBLEM", textColumn, func(c row) string { return first(c.Problems, maxProblem) }},
	})
}

func instanceColumns(all bool) []column[view.Instance] {
	type row = *view.Instance
	return withNamespace(all, func(i row) string { return i.Namespace }, []column[view.Instance]{
		{"NAME", wordColumn, func(i row) string { return i.Name }},
		{"DEVICE", wordColumn, func(i row) string { return short(i.Device, 60) }},
		{"SHARED", wordColumn, func(i row) string { return strconv.FormatBool(i.Shared) }},
		{"NODES", wordColumn, func(i row) string { return some(i.Nodes, 3) }},
		{"SLOTS", wordColumn, func(i row) string { return strconv.Itoa(i.Slots) }},
		{"FREE", wordColumn, func(i row) string { return strconv.Itoa(i.Free) }},
		{"ASSIGNED", wordColumn, func(i row) string { return strconv.Itoa(i.Assigned) }},
		{"HELD", wordColumn, func(i row) string { return strconv.Itoa(i.Held) }},
		{"CONFIGURATION", wideColumn, func(i row) string { return i.Configuration }},
		{"LOST ON", wideColumn, func(i row) string { return some(i.Lost, 3) }},
		{"PROBLEM", wideColumn, func(i row) string { return first(i.Problems, 120) }},
	})
}

func slotColumns(now func() time.Time, all bool) []column[view.Slot] {
	type row = *view.Slot
	return withNamespace(all, func(s row) string { return s.InstanceNamespace }, []column[view.Slot]{
		{"SLOT", wordColumn, func(s row) string { return s.Name }},
		{"STATE", wordColumn, func(s row) string {
			if s.BeyondCapacity {
				return string(s.State) + " (beyond capacity)"
			}
			return string(s.State)
		}},
		{"HOLDER", wordColumn, func(s row) string { return s.Holder() }},
		{"CONTAINER", wordColumn, func(s row) string { return s.Container }},
		{"NODE", wordColumn, func(s row) string {
			if s.Unreachable {
				return s.Node + " (not Ready)"
			}
			return s.Node
		}},
		{"LEVEL", wordColumn, func(s row) string { return s.Level }},
		{"SINCE", wordColumn, func(s row) string { return since(s.Since, now()) }},
		{"DEVICE", wideColumn, func(s row) string { return short(s.Device, 60) }},
		{"POD UID", wideColumn, func(s row) string { return s.PodUID }},
	})
}

func podColumns(now func() time.Time, all bool) []column[view.Pod] {
	type row = *view.Pod
	return withNamespace(all, func(p row) string { return p.Namespace }, []column[view.Pod]{
		{"NAME", wordColumn, func(p row) string { return p.Name }},
		{"STATE", wordColumn, func(p row) string { return string(p.State) }},
		{"SINCE", wordColumn, func(p row) string { return since(p.Since, now()) }},
		{"NODE", wordColumn, func(p row) string { return p.Node }},
		{"REQUESTS", wordColumn, requests},
		{"SLOTS", wordColumn, func(p row) string { return strconv.Itoa(len(p.Slots)) }},
		{"REASON", wordColumn, func(p row) string { return reasons(p.Waits) }},
		{"MESSAGE", wideColumn, func(p row) string {
			if len(p.Waits) == 0 {
				return ""
			}
			return short(p.Waits[0].Why, 160)
		}},
	})
}

var advertisedColumns = []column[view.Advertised]{
	{"RESOURCE", wordColumn, func(a *view.Advertised) string { return a.Resource }},
	{"REACHED", wordColumn, func(a *view.Advertised) string { return strconv.Itoa(a.Reached) }},
	{"FREE", wordColumn, func(a *view.Advertised) string { return strconv.Itoa(a.Free) }},
	{"HELD HERE", wordColumn, func(a *view.Advertised) string { return strconv.Itoa(a.Held) }},
	{"ADVERTISED", wordColumn, func(a *view.Advertised) string { return strconv.FormatInt(a.Allocatable, 10) }},
}

var findingColumns = []column[view.Finding]{
	{"OBJECT", wordColumn, func(f *view.Finding) string { return f.Object }},
	{"REASON", wordColumn, func(f *view.Finding) string { return f.Reason }},
	{"PROBLEM", textColumn, func(f *view.Finding) string { return f.Problem }},
}

// requests names what the pod asks for, such as akri.sh/cameras:2, or cameras.slots.kubeslot.io:2 of a ResourceClaim.
func requests(p *view.Pod) string {
	var texts []string
	for _, a := range p.Requests {
		texts = append(texts, fmt.Sprintf("%s:%d", a.Resource, a.Count))
	}
	for i := range p.Claims {
		texts = append(texts, claimRequests(&p.Claims[i])...)
	}
	return some(texts, 2)
}

// claimRequests are what a ResourceClaim asks for, each as the DeviceClass and a number.
func claimRequests(c *view.PodClaim) []string {
	var texts []string
	for _, r := range c.Requests {
		texts = append(texts, fmt.Sprintf("%s:%d", r.DeviceClass, r.Count))
	}
	return texts
}

// reasons names each reason once.
func reasons(waits []view.Wait) string {
	var all []string
	for _, w := range waits {
		if !slices.Contains(all, w.Reason) {
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
