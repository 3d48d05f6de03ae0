package message

import (
	"regexp"
	"strconv"
	"strings"
)

// Meaning is what one reason means.
type Meaning struct {
	// Reason is a word in CamelCase, such as SlotsHeld, that stays when texts change.
	Reason string
	// Needs is what would let the pod run, as a sentence without a full stop; empty when
	// the reason says so itself.
	Needs string
	// Text is what was said, without what others put before it.
	Text string
	// About is of what the reason is.
	About About
	// Fields are parts of the text by name: container, resource, slot, node, pod.
	Fields map[string]string
}

// About is what a reason is of.
type About string

const (
	// Slots: devices of Kubeslot, of which the view knows more than the text.
	Slots About = "slots"
	// Plugins: devices of .so plugins.
	Plugins About = "plugins"
	// Nodes: anything else that a node lacks.
	Nodes About = "nodes"
	// Pod: the pod itself.
	Pod About = "pod"
	// Preemption: why no other pods were made to go.
	Preemption About = "preemption"
)

// Unknown is the reason of a text that is not in the tables.
const Unknown = "Other"

// known is a text that is understood. needs may have $name for a field of the text.
type known struct {
	pattern *regexp.Regexp
	reason  string
	about   About
	needs   string
}

// Parts of patterns. A name is of a container, in quotes; a resource has no spaces.
const (
	container = `container "(?P<container>[^"]*)"`
	resource  = `(?P<resource>[^\s,:;]+)`
)

// text makes a known text of a pattern, of which it matches the begin.
func text(about About, reason, pattern, needs string) known {
	return known{regexp.MustCompile(`^(?s:` + pattern + `)`), reason, about, needs}
}

// find returns what the begin of the text means, and how long it is; the longest of
// those that match.
func find(table []known, of string) (m Meaning, length int) {
	for i := range table {
		k := &table[i]
		at := k.pattern.FindStringSubmatchIndex(of)
		if at == nil || at[1] <= length {
			continue
		}
		length = at[1]
		m = Meaning{Reason: k.reason, About: k.about, Needs: string(k.pattern.ExpandString(nil, k.needs, of, at))}
		for j, name := range k.pattern.SubexpNames() {
			if name == "" || at[2*j] < 0 {
				continue
			}
			if m.Fields == nil {
				m.Fields = map[string]string{}
			}
			m.Fields[name] = of[at[2*j]:at[2*j+1]]
		}
	}
	return m, length
}

// Part is one reason in what the scheduler says.
type Part struct {
	// Nodes is how many nodes have the reason; 0 for the pod as a whole.
	Nodes int
	Meaning
}

var (
	available  = regexp.MustCompile(`^0/\d+ nodes are available:? ?`)
	postFilter = regexp.MustCompile(`\.? ?(?:no new claims to deallocate|preemption: |not eligible for slot preemption|no pods of lower priority hold slots|slots that would do are free)`)
	counted    = regexp.MustCompile(`^(\d+) `)
	next       = regexp.MustCompile(`, \d+ `)
)

// Scheduler takes apart the message of a pod's PodScheduled condition, or of its
// FailedScheduling event. The parts are in the order of the message; those about
// preemption come last.
func Scheduler(message string) []Part {
	rest := message
	if at := available.FindStringIndex(rest); at != nil {
		rest = rest[at[1]:]
	}
	tail := ""
	if at := postFilter.FindStringIndex(rest); at != nil {
		rest, tail = rest[:at[0]], strings.TrimLeft(rest[at[0]:], ". ")
	}
	parts := split(strings.TrimSuffix(strings.TrimSpace(rest), "."))
	for i := range preemptionTexts { // what else preemption says of nodes repeats what they lack
		k := &preemptionTexts[i]
		if text := k.pattern.FindString(tail); text != "" {
			parts = append(parts, Part{Meaning: Meaning{Reason: k.reason, About: k.about, Text: text}})
		}
	}
	return parts
}

// split takes reasons from the begin of the text, one after the other. Reasons have
// commas in them: where none is known, the next begins with a number.
func split(rest string) []Part {
	var parts []Part
	for rest != "" {
		p := Part{}
		m, length := find(schedulerTexts, rest)
		if n := counted.FindStringSubmatch(rest); n != nil && length == 0 {
			p.Nodes, _ = strconv.Atoi(n[1])
			rest = rest[len(n[0]):]
			m, length = find(schedulerTexts, rest)
		}
		if length == 0 || length < len(rest) && !strings.HasPrefix(rest[length:], ", ") && !strings.HasPrefix(rest[length:], ".") {
			m, length = Meaning{Reason: Unknown, About: Nodes}, len(rest)
			if p.Nodes == 0 {
				m.About = Pod
			}
			if at := next.FindStringIndex(rest); at != nil {
				length = at[0]
			}
		}
		p.Meaning = m
		p.Text = strings.TrimSuffix(rest[:length], ".")
		parts = append(parts, p)
		rest = strings.TrimLeft(rest[length:], "., ")
	}
	return parts
}

// Kubelet says what the kubelet's word for a container that waits, or for a pod that
// failed, and its message mean. Both may be empty.
func Kubelet(reason, message string) Meaning {
	// The message of kubecri stands behind what the kubelet and gRPC put before it.
	if at := kubecriText.FindStringSubmatchIndex(message); at != nil {
		why := message[at[1]:]
		m, length := find(kubecriTexts, why)
		if length == 0 {
			m = Meaning{Reason: "DeviceUnavailable", About: Slots, Needs: "look at kubecri's log on the node; the kubelet tries again"}
		}
		m.Text = why
		return m
	}
	m, length := find(kubeletTexts, reason+": "+message)
	if length == 0 {
		m = Meaning{Reason: reason, About: Pod}
		if reason == "" {
			m.Reason = Unknown
		}
	}
	switch {
	case message == "":
		m.Text = reason
	case reason == "" || reason == m.Reason:
		m.Text = message
	default:
		m.Text = reason + ": " + message
	}
	return m
}
