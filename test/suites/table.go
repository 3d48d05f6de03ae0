package main

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed suites.txt
var suitesText string

// suite is an entry of suites.txt, which says what its fields are. Test, All and Asked are arguments of make.
type suite struct {
	Name, What, Why          string
	Clusters, Packages, Code []string
	Test, All, Asked         []string
	TestMinutes, AllMinutes  int // 0 where it is not run
}

// table is what suites.txt holds.
type table struct {
	Everything, Nothing []string // beginnings of paths
	Suites              []*suite
}

// parseTable reads the text of suites.txt.
func parseTable(text string) (*table, error) {
	t := &table{}
	var s *suite
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		key, values := fields[0], fields[1:]
		if err := t.add(&s, key, values); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	for _, s := range t.Suites {
		if len(s.Clusters)+len(s.Test)+len(s.All)+len(s.Asked) == 0 {
			return nil, fmt.Errorf("suite %s is run by nothing", s.Name)
		}
	}
	return t, nil
}

// add adds a line's values to the suite that is being read, or begins another.
func (t *table) add(s **suite, key string, values []string) error {
	if len(values) == 0 {
		return fmt.Errorf("%s has no value", key)
	}
	switch key {
	case "everything":
		t.Everything = append(t.Everything, values...)
		return nil
	case "nothing":
		t.Nothing = append(t.Nothing, values...)
		return nil
	case "suite":
		if t.find(values[0]) != nil {
			return fmt.Errorf("suite %s is there twice", values[0])
		}
		*s = &suite{Name: values[0]}
		t.Suites = append(t.Suites, *s)
		return nil
	}
	if *s == nil {
		return fmt.Errorf("%s stands before the first suite", key)
	}
	return (*s).set(key, values)
}

func (s *suite) set(key string, values []string) (err error) {
	switch key {
	case "what":
		s.What = strings.Join(values, " ")
	case "why":
		s.Why = strings.Join(values, " ")
	case "clusters":
		s.Clusters = values
	case "packages":
		s.Packages = values
	case "test":
		s.Test = values
	case "test-all":
		s.All = values
	case "asked":
		s.Asked = values
	case "code":
		s.Code = append(s.Code, values...)
	case "minutes":
		if len(values) != 2 {
			return fmt.Errorf("minutes of %s: want two", s.Name)
		}
		if s.TestMinutes, err = minutes(values[0]); err == nil {
			s.AllMinutes, err = minutes(values[1])
		}
	default:
		return fmt.Errorf("no field of a suite is called %s", key)
	}
	return err
}

func minutes(text string) (int, error) {
	if text == "-" {
		return 0, nil
	}
	return strconv.Atoi(text)
}

// find returns the suite of this name, or nil.
func (t *table) find(name string) *suite {
	for _, s := range t.Suites {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// owner returns the suite that has the folder, which is a path in the repository, as a package; nil if it is one
// of those that `make test-unit` tests.
func (t *table) owner(folder string) *suite {
	for _, s := range t.Suites {
		for _, p := range slices.Concat(s.Clusters, s.Packages) {
			if path.Clean(p) == folder {
				return s
			}
		}
	}
	return nil
}

func (s *suite) testMinutes() int { return s.TestMinutes }
func (s *suite) allMinutes() int  { return s.AllMinutes }

// variable is that which asks for the suite.
func (s *suite) variable() string { return strings.ToUpper(s.Name) }

// how are the arguments of make that run a suite without clusters in `make test`, or else in `make test-all`.
func (s *suite) how(all bool) []string {
	switch {
	case !all:
		return s.Test
	case len(s.Asked) > 0:
		return s.Asked
	}
	return s.All
}

// step is one run of make, of one suite or of all that have clusters.
type step struct {
	Name   string
	Args   []string // of make
	Suites []*suite
}

// plan returns the runs of make for the suites, in their order. Those with clusters are run together, by go test,
// two packages at a time, in place of the first of them. A suite that is not run so is left out. Steps of `make test`
// that are not all of a suite have names that say so: in one run of CI both are made.
func plan(suites []*suite, all bool) []*step {
	var steps []*step
	var clusters *step
	for _, s := range suites {
		switch {
		case len(s.Clusters) == 0:
			name, args := s.Name, s.how(all)
			if !all && !slices.Equal(s.Test, s.All) {
				name += "-short"
			}
			if len(args) > 0 {
				steps = append(steps, &step{name, args, []*suite{s}})
			}
		case clusters == nil:
			clusters = &step{"clusters-short", []string{"test-e2e", "SHORT=1"}, []*suite{s}}
			if all {
				clusters = &step{"clusters", []string{"test-e2e", "SHORT="}, []*suite{s}}
			}
			steps = append(steps, clusters)
		default:
			clusters.Suites = append(clusters.Suites, s)
		}
	}
	if clusters != nil {
		var packages []string
		for _, s := range clusters.Suites {
			packages = append(packages, s.Clusters...)
		}
		clusters.Args = append(clusters.Args, "E2E="+strings.Join(packages, " "))
	}
	return steps
}

// command is what a person would type after make.
func (s *step) command() string {
	var words []string
	for _, arg := range s.Args {
		if strings.Contains(arg, " ") {
			name, value, _ := strings.Cut(arg, "=")
			arg = name + "='" + value + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}
