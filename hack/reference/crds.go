package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// schema is what of an OpenAPI or JSON schema pages show.
type schema struct {
	Type                 any               `json:"type"` // a string, or strings
	Description          string            `json:"description"`
	Default              any               `json:"default"`
	Format               string            `json:"format"`
	Pattern              string            `json:"pattern"`
	Enum                 []any             `json:"enum"`
	Minimum              *float64          `json:"minimum"`
	Maximum              *float64          `json:"maximum"`
	MinLength            *int              `json:"minLength"`
	MaxLength            *int              `json:"maxLength"`
	MinItems             *int              `json:"minItems"`
	MaxItems             *int              `json:"maxItems"`
	MaxProperties        *int              `json:"maxProperties"`
	Required             []string          `json:"required"`
	Nullable             bool              `json:"nullable"`
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties any               `json:"additionalProperties"` // a boolean, or a schema
	Ref                  string            `json:"$ref"`
	IntOrString          bool              `json:"x-kubernetes-int-or-string"`
	PreserveUnknown      bool              `json:"x-kubernetes-preserve-unknown-fields"`
	ListType             string            `json:"x-kubernetes-list-type"`
	ListKeys             []string          `json:"x-kubernetes-list-map-keys"`
	Rules                []struct {
		Rule    string `json:"rule"`
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

type crd struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Versions []struct {
			Name             string `json:"name"`
			SelectableFields []struct {
				JSONPath string `json:"jsonPath"`
			} `json:"selectableFields"`
			Schema struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// crds lists the fields of each CRD.
func crds(t *tree, p *page) error {
	files, err := filepath.Glob(filepath.Join(t.root, "deploy/crds/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in deploy/crds: %w", err)
	}
	p.begin(
		"Custom resources",
		"deploy/crds",
		"`[]` is each item of a list, `{}` each value of a map. `kubectl explain configurations.akri.sh.spec` says the same in a terminal. "+
			"People write Configurations; nodes write DeviceSlices and SlotClaims, and the controller writes "+
			"Instances. "+
			"A field whose description ends with Since and a version came with that release; the others are in "+
			"all releases.",
	)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var c crd
		if err := yaml.UnmarshalStrict(text, &map[string]any{}); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := yaml.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range c.Spec.Versions {
			top := version.Schema.OpenAPIV3Schema
			p.heading(2, c.Spec.Names.Kind)
			names := strings.Join(append([]string{c.Spec.Names.Plural}, c.Spec.Names.ShortNames...), "`, `")
			p.paragraph(
				fmt.Sprintf("`%s/%s`, %s. In kubectl: `%s`.", c.Spec.Group, version.Name, scopes[c.Spec.Scope], names),
			)
			p.paragraph(plain(top.Description))
			for _, rule := range top.Rules {
				p.paragraph("Rule: " + plain(rule.Message) + ".")
			}
			for _, field := range version.SelectableFields {
				p.paragraph("Field selector: `" + strings.TrimPrefix(field.JSONPath, ".") + "`.")
			}
			var rows [][]string
			for _, name := range []string{"spec", "status"} {
				if part, there := top.Properties[name]; there {
					if rows, err = fieldRows(rows, name, part, slices.Contains(top.Required, name)); err != nil {
						return fmt.Errorf("%s: %w", file, err)
					}
				}
			}
			p.table([]string{"field", "type", "default", "validation", "meaning"}, rows)
		}
	}
	return nil
}

var scopes = map[string]string{"Namespaced": "in a namespace", "Cluster": "without a namespace"}

// fieldRows adds a row of a field, and those of the fields in it.
func fieldRows(rows [][]string, path string, s schema, required bool) ([][]string, error) {
	if s.Description == "" {
		return nil, fmt.Errorf("%s has no description: give the Go field a comment", path)
	}
	checks := s.validation()
	if required {
		checks = append([]string{"required"}, checks...)
	}
	rows = append(
		rows,
		[]string{code(path), s.typeName(), code(value(s.Default)), strings.Join(checks, "; "), plain(s.Description)},
	)
	var err error
	for _, name := range sortedKeys(s.Properties) {
		if rows, err = fieldRows(rows, path+"."+name, s.Properties[name],
			slices.Contains(s.Required, name)); err != nil {
			return nil, err
		}
	}
	inner, suffix := s.Items, "[]"
	if inner == nil {
		inner, suffix = s.values(), "{}"
	}
	if inner == nil {
		return rows, nil
	}
	for _, name := range sortedKeys(inner.Properties) {
		if rows, err = fieldRows(rows, path+suffix+"."+name, inner.Properties[name],
			slices.Contains(inner.Required, name)); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// values is the schema of a map's values, nil if there is none.
func (s schema) values() *schema {
	if _, is := s.AdditionalProperties.(map[string]any); !is {
		return nil
	}
	var inner schema
	text, err := yaml.Marshal(s.AdditionalProperties)
	if err == nil {
		err = yaml.Unmarshal(text, &inner)
	}
	if err != nil {
		panic(err) // it was read from YAML
	}
	return &inner
}

// typeName is the type in words: string, []string, map of string, date-time.
func (s schema) typeName() string {
	switch of := s.Type.(type) {
	case []any:
		var all []string
		for _, one := range of {
			all = append(all, fmt.Sprint(one))
		}
		return strings.Join(all, " or ")
	case nil:
		if s.IntOrString {
			return "integer or string"
		}
		var all []string
		for _, one := range s.Enum {
			if name := strings.Replace(fmt.Sprintf("%T", one), "bool", "boolean", 1); one != nil &&
				!slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		return strings.Join(all, " or ")
	}
	switch inner := s.values(); {
	case s.Items != nil:
		return strings.TrimSuffix("list of "+s.Items.typeName(), " of ")
	case inner != nil:
		return "map of " + inner.typeName()
	case s.Format != "":
		return s.Format
	}
	return fmt.Sprint(s.Type)
}

// validation says what else a value has to be.
func (s schema) validation() []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	number := func(n *float64) string { return strconv.FormatFloat(*n, 'f', -1, 64) }
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		add("%s to %s", number(s.Minimum), number(s.Maximum))
	case s.Minimum != nil:
		add("at least %s", number(s.Minimum))
	case s.Maximum != nil:
		add("at most %s", number(s.Maximum))
	}
	if s.MinLength != nil && *s.MinLength > 0 {
		add("not empty")
	}
	for _, limit := range []struct {
		n    *int
		text string
	}{{s.MaxLength, "at most %d characters"}, {s.MinItems, "at least %d items"}, {s.MaxItems, "at most %d items"}, {s.MaxProperties, "at most %d keys"}} {
		if limit.n != nil {
			add(limit.text, *limit.n)
		}
	}
	if s.Pattern != "" {
		add("%s", code(s.Pattern))
	}
	if len(s.Enum) > 0 {
		var names []string
		for _, one := range s.Enum {
			if one != nil {
				names = append(names, code(value(one)))
			}
		}
		add("one of %s", strings.Join(names, ", "))
	}
	if len(s.ListKeys) > 0 {
		add("no two with one %s", strings.Join(s.ListKeys, " and "))
	}
	if s.ListType == "set" {
		add("no two alike")
	}
	for _, rule := range s.Rules {
		add("%s", plain(rule.Message))
	}
	if s.Items != nil {
		for _, check := range s.Items.validation() {
			add("each %s", check)
		}
	}
	return all
}

// value is a value as JSON, "" for none.
func value(v any) string {
	if v == nil {
		return ""
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		return fmt.Sprint(v)
	}
	if s, is := v.(string); is && s != "" {
		return s
	}
	return string(text)
}
