package hostinstall

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

// simulated is a host on which plans are carried out.
type simulated struct{ Host }

// apply makes the first n of the plan's changes; all with -1.
func (s *simulated) apply(t *testing.T, p Plan, n int) {
	t.Helper()
	for _, stage := range p.Stages {
		for _, c := range stage.Changes {
			if n == 0 {
				s.look(t)
				return
			}
			n--
			now, there := s.Files[c.Path]
			if there != (c.Before != nil) || there && now != *c.Before {
				t.Fatalf("%s: the plan takes it to be %v, and it is %q", c.Path, c.Before, now)
			}
			if c.After == nil {
				delete(s.Files, c.Path)
			} else {
				s.Files[c.Path] = *c.After
			}
		}
		if stage.Unit == UnitName {
			s.Active = true
		}
	}
	s.look(t)
}

// look reads the record again, and has the kubelet restart with the new flag.
func (s *simulated) look(t *testing.T) {
	t.Helper()
	s.Record = nil
	if text, there := s.Files[RecordFile]; there {
		var err error
		if s.Record, err = ParseRecord(text); err != nil {
			t.Fatal(err)
		}
	}
	if s.Kubelet.Args.RuntimeEndpoint == "" {
		return
	}
	for _, file := range s.Kubelet.CommandLine {
		if value := kubeletargs.Flag(s.Files[file]); value != "" {
			s.Kubelet.Args.RuntimeEndpoint = value
		}
	}
}

func (s *simulated) install(t *testing.T, w Want) Plan {
	t.Helper()
	p, err := Install(s.Host, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// uninstall takes kubecri away, and compares with what there was.
func (s *simulated) uninstall(t *testing.T, original map[string]string) {
	t.Helper()
	p, err := Uninstall(s.Host, "")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, p, -1)
	delete(s.Files, RecordFile) // Forget
	delete(s.Files, EnvFile)
	if diff := cmp.Diff(normal(original), normal(s.Files)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// normal ends each file with a newline.
func normal(files map[string]string) map[string]string {
	all := map[string]string{}
	for path, text := range files {
		all[path] = strings.TrimSuffix(text, "\n") + "\n"
	}
	return all
}
