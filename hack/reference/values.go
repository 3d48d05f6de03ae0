package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// usual are values of Kubernetes' own, by the last part of their names, that values.yaml need not explain.
var usual = map[string]string{
	"enabled":      "Whether it is installed.",
	"replicas":     "How many pods.",
	"extraArgs":    "Further arguments: [flags](flags.md).",
	"resources":    "Requests and limits of the container.",
	"nodeSelector": "Labels of the nodes that the pods may run on.",
	"tolerations":  "Taints that the pods tolerate.",
	"affinity":     "Affinity of the pods.",
	"env":          "Further environment variables of the container.",
	"pullPolicy":   "When kubelets pull the images.",
	"interval":     "How often Prometheus reads the metrics.",
}

// akris are the blocks with the keys of Akri's chart, which are alike.
var akris = regexp.MustCompile(`^(onvif|opcua|udev|custom)$`)

// chartValues lists the chart's values: names and defaults from values.yaml, types from the schema,
// meanings from comments.
func chartValues(t *tree, p *page) error {
	const folder = "deploy/helm/kubeslot/"
	text, err := os.ReadFile(t.root + "/" + folder + "values.yaml")
	if err != nil {
		return err
	}
	values, comments := map[string]any{}, comments(string(text))
	if err := yaml.Unmarshal(text, &values); err != nil {
		return err
	}
	var root schema
	var definitions struct {
		Definitions map[string]schema `json:"definitions"`
	}
	text, err = os.ReadFile(t.root + "/" + folder + "values.schema.json")
	if err == nil {
		err = yaml.Unmarshal(text, &root)
	}
	if err == nil {
		err = yaml.Unmarshal(text, &definitions)
	}
	if err != nil {
		return err
	}
	p.begin(
		"Values of the Helm chart",
		folder+"values.yaml and values.schema.json",
		"A value that is not here, or of another type, is refused by Helm. [Install with Helm](../helm.md) says "+
			"which to begin with.",
	)
	var order []string
	var missing error
	for _, c := range comments.order {
		if name, _, _ := strings.Cut(c, "."); len(order) == 0 || order[len(order)-1] != name {
			order = append(order, name)
		}
	}
	for _, name := range order {
		if akris.MatchString(name) {
			continue
		}
		w := valueRows{comments: comments, definitions: definitions.Definitions}
		w.add(name, values[name], root.Properties[name])
		missing = errors.Join(missing, w.err)
		p.heading(2, name)
		if about := comments.text[name]; about != "" && len(w.rows) > 0 && w.rows[0][0] != code(name) {
			p.paragraph(plain(about))
		}
		if name == "debugEcho" {
			p.paragraph(
				"`onvif`, `opcua`, `udev` and `custom` have the same keys, with other defaults: see `values.yaml`. " +
					"`opcua.configuration.mountCertificates` mounts the Secret opcua-broker-credentials in brokers. " +
					"`custom.configuration.discoveryHandlerName` is the name that the handler registers with.",
			)
		}
		p.table([]string{"value", "type", "default", "validation", "meaning"}, w.rows)
	}
	return missing
}

// chartReadme is what the chart's users see beside it: how to begin, and the chart's values. Its links lead to the
// pages in the repository, since a packed chart has none of them.
func chartReadme(t *tree, p *page) error {
	const docs = "https://github.com/kubeslot/kubeslot/blob/main/docs/"
	var values page
	if err := chartValues(t, &values); err != nil {
		return err
	}
	_, tables, _ := strings.Cut(values.String(), "\n## ")
	p.begin(
		"Kubeslot",
		"values.yaml and values.schema.json",
		"Gives Kubernetes pods devices by the slot: cameras, servers, GPUs and what is plugged into nodes. The chart "+
			"replaces nothing that the cluster has.",
		"[Getting started]("+docs+"getting-started.md) installs it and tries it, [install with Helm]("+docs+
			"helm.md) says what to set first, [platforms]("+docs+"platforms.md) what GKE, OpenShift and others need, "+
			"and "+
			"`platforms/` has values for each. A value that is not below, or of another type, is refused.",
	)
	tables = strings.NewReplacer("](../", "]("+docs, "](flags.md", "]("+docs+"reference/flags.md").Replace(tables)
	p.WriteString("\n## " + tables)
	return nil
}

// valueRows collects the rows of values that are no blocks.
type valueRows struct {
	comments    notes
	definitions map[string]schema
	rows        [][]string
	err         error
}

func (w *valueRows) add(path string, v any, s schema) {
	if s.Ref != "" {
		s = w.definitions[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	if s.Properties = maps.Clone(s.Properties); len(s.Properties) > 0 { // a block
		block, _ := v.(map[string]any)
		if about := w.comments.text[path]; about != "" && strings.Contains(path, ".") {
			w.rows = append(w.rows, []string{code(path), "object", "", "", plain(about)})
		}
		for _, c := range w.comments.order { // as they are in the file, and those without a line of their own
			if name, within := strings.CutPrefix(c, path+"."); within && !strings.Contains(name, ".") {
				w.add(c, block[name], s.Properties[name])
				delete(s.Properties, name)
			}
		}
		for _, name := range sortedKeys(s.Properties) { // in one line of the file, or in the schema alone
			if inner, there := block[name]; there || name != "global" {
				w.add(path+"."+name, inner, s.Properties[name])
			}
		}
		return
	}
	last := path[strings.LastIndex(path, ".")+1:]
	meaning := plain(w.comments.text[path])
	if meaning == "" {
		meaning = usual[last]
	}
	if s.Description != "" {
		meaning = strings.TrimSpace(meaning + " " + sentence(plain(s.Description)))
	}
	if meaning == "" && !strings.HasPrefix(path, "debugEcho.") {
		w.err = errors.Join(w.err, fmt.Errorf("%s has no comment in values.yaml", path))
	}
	w.rows = append(
		w.rows,
		[]string{code(path), s.typeName(), code(value(v)), strings.Join(s.validation(), "; "), meaning},
	)
}

// notes are the keys of a YAML file in their order, and the comments above them.
type notes struct {
	order []string
	text  map[string]string
}

var keyLine = regexp.MustCompile(`^( *)([A-Za-z][A-Za-z0-9]*):(?: |$)`)

// comments reads the comments of values.yaml, in which blocks are indented by two.
func comments(file string) notes {
	found := notes{text: map[string]string{}}
	var path []string
	above := ""
	for line := range strings.Lines(file) {
		line = strings.TrimRight(line, "\n")
		if text, is := strings.CutPrefix(strings.TrimSpace(line), "#"); is {
			if !strings.HasPrefix(text, "  ") { // else an example
				above += " " + text
			}
			continue
		}
		if m := keyLine.FindStringSubmatch(line); m != nil {
			depth := len(m[1]) / 2
			path = append(path[:min(depth, len(path))], m[2])
			name := strings.Join(path, ".")
			found.order = append(found.order, name)
			found.text[name] = strings.Join(strings.Fields(above), " ")
		}
		above = ""
	}
	return found
}
