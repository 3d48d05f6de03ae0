package cluster

import (
	"slices"
	"strings"
	"testing"
)

func TestUnitBecomesCommandLine(t *testing.T) {
	env := map[string]string{"A": "one two", "B": "b", "EMPTY": ""}
	tests := []struct {
		name    string
		unit    string
		want    []string
		wantErr string
	}{
		{
			name: "continued lines, comments between them, other sections",
			unit: "[Unit]\nExecStart=/wrong\n[Service]\nType=exec\n# why\nExecStart=/bin/x \\\n  --a=${B} \\\n# not part of it\n  --c\nRestart=always\n[Install]\nExecStart=/wrong\n",
			want: []string{"/bin/x", "--a=b", "--c"},
		},
		{
			name: "braces keep one word, a bare variable is split",
			unit: "[Service]\nExecStart=/bin/x ${A} $A pre$A",
			want: []string{"/bin/x", "one two", "one", "two", "pre$A"},
		},
		{
			name: "an empty bare variable is no word, an empty braced one is",
			unit: "[Service]\nExecStart=/bin/x $EMPTY ${EMPTY}",
			want: []string{"/bin/x", ""},
		},
		{
			name: "quotes and escapes",
			unit: `[Service]` + "\n" + `ExecStart=/bin/x "a b" 'c "d"' e\sf "g\"h" "" --i="j k"`,
			want: []string{"/bin/x", "a b", `c "d"`, "e f", `g"h`, "", "--i=j k"},
		},
		{
			name: "dollars and percents",
			unit: "[Service]\nExecStart=/bin/x $$B 5%% ${not-a-name}",
			want: []string{"/bin/x", "$B", "5%", "${not-a-name}"},
		},
		{
			name: "prefixes of the program",
			unit: "[Service]\nExecStart=-+/bin/x",
			want: []string{"/bin/x"},
		},
		{
			name: "the last ExecStart counts",
			unit: "[Service]\nExecStart=/bin/x\nExecStart=\nExecStart=/bin/y",
			want: []string{"/bin/y"},
		},
		{
			name: "the unit's own environment gives way to the file's",
			unit: "[Service]\nEnvironment=B=unit \"D=of unit\"\nExecStart=/bin/x ${B} ${D}",
			want: []string{"/bin/x", "b", "of unit"},
		},
		{
			name:    "variables nobody sets are named once each",
			unit:    "[Service]\nExecStart=/bin/x ${NO} $NOR ${NO}",
			wantErr: "uses NO, NOR,",
		},
		{
			name:    "specifiers are refused",
			unit:    "[Service]\nExecStart=/bin/x --node=%H",
			wantErr: "specifier",
		},
		{
			name:    "open quote",
			unit:    "[Service]\nExecStart=/bin/x \"a",
			wantErr: "not closed",
		},
		{
			name:    "no command",
			unit:    "[Unit]\nDescription=x",
			wantErr: "no ExecStart=",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseUnit(test.unit, env)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// deploy/'s units leave no variable open that the cluster does not set.
func TestControllerRunsAsItsUnitSays(t *testing.T) {
	root, err := FindRepoRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	p, err := controllerProcess(Config{RepoRoot: root}, layout{"/s"}, programs{Controller: "/bin/ours"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/bin/ours", "--kubeconfig=/s/kubeconfigs/controller", "--leader-elect=false", "--v=2"}
	if !slices.Equal(p.Argv, want) {
		t.Errorf("got  %q\nwant %q", p.Argv, want)
	}
}
