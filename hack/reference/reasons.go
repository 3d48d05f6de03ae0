package main

import (
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed reasons.yaml
var reasonsFile []byte

// reason is a line of reasons.yaml, whose head says what its parts are.
type reason struct {
	Reason, Type, About, By, Means, See, Do string
	Event                                   bool
}

type reasonTables struct{ Events, Conditions, Problems, Reasons []reason }

// eventsAndConditions lists reasons.yaml, once it fits the code.
func eventsAndConditions(t *tree, p *page) error {
	var tables reasonTables
	if err := yaml.UnmarshalStrict(reasonsFile, &tables); err != nil {
		return fmt.Errorf("reasons.yaml: %w", err)
	}
	if err := t.compare(tables); err != nil {
		return err
	}
	actions, err := t.doctorsActions()
	if err != nil {
		return err
	}
	conditions, err := t.conditionTypes()
	if err != nil {
		return err
	}
	p.begin(
		"Events and conditions",
		"hack/reference/reasons.yaml, which is compared with the Go code",
		"Reasons are for programs, too: they stay when messages change. `kubectl get events -A --field-selector reason=SlotLost` finds Events. "+
			"Why a pod is Pending is in the scheduler's Event `FailedScheduling`: [its messages](../troubleshooting.md#it-is-pending-the-schedulers-reason); "+
			"the reasons that `kubectl kubeslot pod` shows are [kubectl's](../kubectl.md#why-a-pod-waits), and those of metrics are in [monitoring](../monitoring.md#slots-and-pods-that-wait).",
	)
	p.heading(2, "Events")
	p.paragraph(
		"They are warnings, unless their row says Normal. Those of problems of Configurations are " +
			"[below](#problems-of-configurations).",
	)
	var rows [][]string
	for _, r := range tables.Events {
		rows = append(
			rows,
			[]string{code(r.Reason), strings.TrimSuffix(r.About+", "+r.Type, ", "), r.By, r.Means, r.action("")},
		)
	}
	p.table([]string{"reason", "on", "by", "meaning", "what to do"}, rows)

	p.heading(2, "Conditions")
	p.paragraph(
		"A condition of a Node is True when something is wrong; one of a Configuration when nothing is. A " +
			"Configuration's condition may also have the reason of a [problem](#problems-of-configurations).",
	)
	rows = nil
	for _, c := range tables.Conditions {
		rows = append(rows, []string{code(c.Type), c.About, c.By, conditions[c.Type], c.action("")})
	}
	p.table([]string{"condition", "on", "by", "meaning", "what to do"}, rows)
	rows = nil
	for _, r := range tables.Reasons {
		rows = append(rows, []string{code(r.Reason), r.About, r.Means})
	}
	p.table([]string{"reason", "of", "status and meaning"}, rows)

	p.heading(2, "Problems of Configurations")
	p.paragraph("In `status.problems`, with the node that has it, and as reasons of conditions.")
	rows = nil
	for _, r := range tables.Problems {
		event := ""
		if r.Event {
			event = "yes"
		}
		rows = append(rows, []string{code(r.Reason), event, r.Means, r.action(actions[r.Reason])})
	}
	p.table([]string{"reason", "Event", "meaning", "what to do"}, rows)
	return nil
}

// action says what to do: in words, and where more is said of it.
func (r reason) action(said string) string {
	text := strings.TrimSpace(plain(sentence(said)) + " " + r.Do)
	if r.See != "" {
		name, _, _ := strings.Cut(r.See, ".md")
		text = strings.TrimSpace(text + " [" + name + "](../" + r.See + ")")
	}
	return text
}

// word is what reasons look like.
var word = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// compare finds reasons that only the code or only the tables have.
func (t *tree) compare(tables reasonTables) error {
	listed := map[string]bool{}
	for _, table := range [][]reason{tables.Events, tables.Problems, tables.Reasons} {
		for _, r := range table {
			listed[r.Reason] = true
		}
	}
	used, constants := map[string]string{}, map[string]bool{} // used: with where
	note := func(e ast.Expr) {
		if text, ok := t.constant(e); ok && word.MatchString(text) {
			used[text] = t.at(e)
		}
	}
	for _, folder := range []string{"kubecri", "controller", "kube-scheduler", "types"} {
		t.each(folder, func(p *goPackage, n ast.Node) {
			switch n := n.(type) {
			case *ast.CallExpr: // an Event: the reason is behind the type
				for i, arg := range n.Args[:max(0, len(n.Args)-1)] {
					if strings.Contains(types.ExprString(arg), ".EventType") {
						note(n.Args[i+1])
					}
				}
			case *ast.CompositeLit:
				if value := fields(n)["Reason"]; value != nil {
					note(value)
				}
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.CONST && isReason(n, v) {
						for _, value := range v.Values {
							note(value)
						}
					}
				}
			case ast.Expr:
				if text, ok := t.constant(n); ok {
					constants[text], constants["SlotClaim"+text] = true, true // controller/claims puts SlotClaim before
				}
			}
		})
	}
	var problems error
	for _, name := range sortedKeys(used) {
		if !listed[name] && !listed["SlotClaim"+name] && !notOurs[name] {
			problems = errors.Join(
				problems,
				fmt.Errorf("%s: reason %s is not in hack/reference/reasons.yaml", used[name], name),
			)
		}
	}
	for _, name := range sortedKeys(listed) {
		if !constants[name] {
			problems = errors.Join(problems, fmt.Errorf("hack/reference/reasons.yaml has %s, which no code has", name))
		}
	}
	return problems
}

// notOurs are reasons of Kubernetes', and what only looks like one.
var notOurs = map[string]bool{"PreemptionByScheduler": true}

// isReason reports whether a constant is one of the reasons of Events or problems, by the comment above the group.
func isReason(group *ast.GenDecl, v *ast.ValueSpec) bool {
	about := group.Doc.Text()
	return strings.HasPrefix(about, "Reasons of ") || strings.HasPrefix(about, "Reasons to delete a claim") ||
		strings.HasPrefix(v.Names[0].Name, "reason")
}

// doctorsActions are what `kubectl kubeslot doctor` says to do about problems of Configurations, by reason.
func (t *tree) doctorsActions() (map[string]string, error) {
	actions := map[string]string{}
	t.each("kubectl-kubeslot/view", func(_ *goPackage, n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "configurationActions" {
			for _, element := range v.Values[0].(*ast.CompositeLit).Elts {
				pair := element.(*ast.KeyValueExpr)
				name, _ := t.constant(pair.Key)
				actions[name], _ = t.constant(pair.Value)
			}
		}
	})
	if len(actions) == 0 {
		return nil, errors.New("kubectl-kubeslot/view has no configurationActions any more")
	}
	return actions, nil
}

// conditionTypes are what the comments of the constants say of conditions, by type.
func (t *tree) conditionTypes() (map[string]string, error) {
	meanings := map[string]string{}
	keys, err := t.keys()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.kind == "Condition" {
			meanings[k.name] = k.meaning
		}
	}
	t.each("types/akri/v0", func(_ *goPackage, n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Condition") && v.Doc != nil {
			name, _ := t.constant(v.Values[0])
			text := strings.Join(strings.Fields(v.Doc.Text()), " ")
			meanings[name] = sentence(plain(strings.TrimPrefix(text, v.Names[0].Name+" is ")))
		}
	})
	return meanings, nil
}
