package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// change is what was changed since some commit.
type change struct {
	Since string   // a commit
	Files []string // paths in the repository
	Doubt string   // why it is not known what was changed; "" if it is
}

// verdict says whether a suite is run as `make test-all` does, and why.
type verdict struct {
	Suite *suite
	Run   bool
	Why   string
}

// choose says which suites CI runs after `make test`: those whose code the change touches, as long as their minutes
// fit into the time that is left. Those with clusters come first, which show most, then the others, in the table's
// order. Suites of which `make test` runs all are not among them.
func (t *table) choose(c change, left time.Duration) []verdict {
	var verdicts []verdict
	var run []*suite
	suites := slices.Clone(t.Suites)
	slices.SortStableFunc(suites, func(a, b *suite) int { return min(len(b.Clusters), 1) - min(len(a.Clusters), 1) })
	for _, s := range suites {
		if len(s.Clusters) == 0 && slices.Equal(s.Test, s.All) && len(s.Asked) == 0 {
			continue
		}
		why := t.touches(c, s)
		v := verdict{s, why != "", why}
		switch with := took(append(slices.Clone(run), s), (*suite).allMinutes); {
		case len(s.Asked) > 0:
			v.Run, v.Why = false, "runs when it is asked for: make test-all "+s.variable()+"=1"
		case why == "":
			v.Why = "its code is as it was"
		case with > left:
			v.Run, v.Why = false, fmt.Sprintf("takes %d min, too long for what is left of the time (%s)", s.AllMinutes, why)
		default:
			run = append(run, s)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// touches says why the change touches the suite, "" if it does not.
func (t *table) touches(c change, s *suite) string {
	if c.Doubt != "" {
		return c.Doubt
	}
	for _, file := range c.Files {
		if begins(t.Everything, file) || t.unknown(file) {
			return file
		}
		if strings.HasSuffix(file, "_test.go") { // which tests nothing but its own package
			owner := t.owner(path.Dir(file))
			if owner == s || owner == nil && !s.hasPackages() && begins(s.Code, file) {
				return file
			}
		} else if begins(s.Code, file) || s.holds(file) {
			return file
		}
	}
	return ""
}

// unknown reports that no line of suites.txt has the file.
func (t *table) unknown(file string) bool {
	return !begins(t.Nothing, file) && !slices.ContainsFunc(t.Suites, func(s *suite) bool {
		return begins(s.Code, file) || s.holds(file)
	})
}

// hasPackages reports that the suite has packages that no other runs.
func (s *suite) hasPackages() bool { return len(s.Clusters)+len(s.Packages) > 0 }

// holds reports that the file is in or below one of the suite's packages.
func (s *suite) holds(file string) bool {
	return slices.ContainsFunc(slices.Concat(s.Clusters, s.Packages), func(p string) bool {
		return strings.HasPrefix(file, path.Clean(p)+"/")
	})
}

// begins reports that one of the beginnings is that of the file's path.
func begins(beginnings []string, file string) bool {
	return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(file, b) })
}

// slowness is how many times as long as suites.txt says `make test` took here: what comes after it will, too. A
// quicker machine counts as one of the table's.
func (t *table) slowness(test time.Duration) float64 {
	return max(1, float64(test)/float64(took(t.Suites, (*suite).testMinutes)))
}

// took is how long suites take: those with clusters run two packages at a time, the others by themselves.
func took(suites []*suite, minutes func(*suite) int) time.Duration {
	var alone int
	var two [2]int
	for _, s := range suites {
		if len(s.Clusters) == 0 {
			alone += minutes(s)
		} else if two[0] <= two[1] {
			two[0] += minutes(s)
		} else {
			two[1] += minutes(s)
		}
	}
	return time.Duration(alone+max(two[0], two[1])) * time.Minute
}
