package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// key is a label, an annotation or a condition's type.
type key struct {
	name, kind, on, writers, readers, meaning string
}

var (
	// keyPattern is what keys of Kubeslot and Akri look like. akri.sh/ with another name is a resource.
	keyPattern = regexp.MustCompile(
		`^(kubeslot\.io/[A-Za-z][A-Za-z-]*|akri\.sh/(configuration|instance|target-node)|KubeDevice/\w+|akri\.agent\.[a-z-]+)$`,
	)
	// lastParagraph is what ends the comment of a key's constant.
	lastParagraph = regexp.MustCompile(
		`^(Label|Annotation|Condition|Taint) of ([^.]+)\. Written by ([^.]+)\. Read by ([^.]+)\.$`,
	)
)

// notKeys are constants that look like keys and are in no object.
var notKeys = map[string]bool{"kubeslot.io/binding": true} // of the scheduler's cycle state

// manifestKeys are keys that no Go code has.
var manifestKeys = []key{
	{"gpu.kubeslot.io/…", "Label", "Nodes", "kubecri, for its NVIDIA GPU plugin", "schedulers, people",
		"What GPUs the node has: [labels](../nvidia-gpus.md#labels)."},
	{"nvidia.com/device-plugin.config", "Label", "Nodes", "people", "kubecri, for its NVIDIA GPU plugin",
		"Which file configures the plugin on this node: [NVIDIA GPUs](../nvidia-gpus.md#configuration)."},
	{
		"kubeslot.io/instance-requests",
		"Label",
		"Namespaces",
		"people",
		"the policy of deploy/quota",
		"`forbidden` has the API server refuse pods of the namespace that request one Instance: [quotas](../request-devices.md).",
	},
	{"kubeslot.io/metrics-of", "Label", "Services", "the Helm chart", "its ServiceMonitors",
		"The job that the metrics behind the Service are of, such as `kubecri`."},
	{
		"kubeslot.io/start-without-kubecri",
		"Annotation",
		"Pods",
		"people; the Helm chart, on kubecri's pods",
		"containerd's NRI validator",
		"Where the runtime requires kubecri's plugin, a pod with the value `\"true\"` starts without it: [NRI](../nri.md).",
	},
}

// keys lists what the constants' comments say of them.
func keys(t *tree, p *page) error {
	found, err := t.keys()
	if err != nil {
		return err
	}
	found = append(found, manifestKeys...)
	p.begin(
		"Labels and annotations",
		"the comments of the Go constants",
		"Keys by which Kubeslot's parts talk to each other, and to people, through objects of the API and through containers. "+
			"Those of `akri.sh` and `KubeDevice` are as in these projects. What only a program may write, a policy keeps from others: [security](../security.md).",
		"Extended resources have the group `akri.sh`, too: `akri.sh/<configuration>` and `akri.sh/<instance>`, see [request devices](../request-devices.md). "+
			"Conditions of nodes are in [Events and conditions](events-and-conditions.md).",
	)
	for _, kind := range []string{"Label", "Annotation", "Taint"} {
		var rows [][]string
		for _, k := range found {
			if k.kind == kind {
				rows = append(rows, []string{code(k.name), k.on, k.writers, k.readers, k.meaning})
			}
		}
		slices.SortFunc(rows, slices.Compare)
		p.heading(2, kind+"s")
		p.table([]string{strings.ToLower(kind), "of", "written by", "read by", "meaning"}, rows)
	}
	return nil
}

func isKey(text string) bool { return keyPattern.MatchString(text) && !notKeys[text] }

// keys are those of constants.
func (t *tree) keys() ([]key, error) {
	found, without := map[string]key{}, map[string]error{}
	t.each("", func(_ *goPackage, n ast.Node) {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			return
		}
		for _, spec := range decl.Specs {
			v := spec.(*ast.ValueSpec)
			for i, value := range v.Values {
				name, _ := t.constant(value)
				_, literal := ast.Unparen(value).(*ast.BasicLit)
				if _, concatenated := value.(*ast.BinaryExpr); !literal && !concatenated || !isKey(name) {
					continue // another name of a constant
				}
				doc := v.Doc
				if doc == nil && len(decl.Specs) == 1 {
					doc = decl.Doc
				}
				if k, err := keyOf(name, v.Names[i].Name, doc.Text()); err == nil {
					found[name] = k
				} else if _, known := found[name]; !known && without[name] == nil {
					without[name] = fmt.Errorf("%s: %w", t.at(v), err)
				}
			}
		}
	})
	for name, err := range without {
		if _, known := found[name]; !known { // no constant of this value has the comment
			return nil, err
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

// keyOf takes the comment of a constant apart.
func keyOf(name, constant, doc string) (key, error) {
	doc = strings.TrimSpace(doc)
	first, last := "", doc
	if at := strings.LastIndex(doc, "\n\n"); at >= 0 {
		first, last = doc[:at], doc[at+2:]
	}
	m := lastParagraph.FindStringSubmatch(strings.Join(strings.Fields(last), " "))
	if m == nil || first == "" {
		return key{}, fmt.Errorf(
			"the comment of %s (%s) has to end with a paragraph `Label of Pods. Written by …. Read by ….` "+
				"(or Annotation, Condition, Taint)",
			constant,
			name,
		)
	}
	meaning := strings.TrimPrefix(strings.Join(strings.Fields(first), " "), constant+" ")
	meaning = strings.TrimPrefix(meaning, "is ")
	if strings.HasSuffix(name, "-") {
		name += "<slot>"
	}
	return key{name, m[1], plain(m[2]), plain(m[3]), plain(m[4]), sentence(plain(meaning))}, nil
}
