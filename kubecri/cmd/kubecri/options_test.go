package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptionsAreCheckedBeforeAnythingStarts(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want []string // parts of the error; nil for none
	}{
		{name: "defaults", args: []string{"--node-name=node-a"}},
		{name: "node name", args: []string{"--node-name=A_b"}, want: []string{"--node-name", `"A_b"`}},
		{name: "endpoints", args: []string{"--listen=tcp://1.2.3.4:5", "--runtime-endpoint="}, want: []string{"--listen", "--runtime-endpoint"}},
		{name: "one endpoint for both", args: []string{"--listen=/run/a.sock", "--runtime-endpoint=unix:///run/a.sock"}, want: []string{"both /run/a.sock"}},
		{name: "kubeconfig", args: []string{"--kubeconfig=/does/not/exist"}, want: []string{"--kubeconfig", "/does/not/exist"}},
		{name: "durations", args: []string{"--claim-grace=-1s", "--claim-resync=0s"}, want: []string{"--claim-grace", "--claim-resync"}},
		{name: "metrics off", args: []string{"--metrics-bind-address=0"}},
		{name: "metrics on all addresses", args: []string{"--metrics-bind-address=:10349"}},
		{name: "metrics port", args: []string{"--metrics-bind-address=127.0.0.1:0"}, want: []string{"--metrics-bind-address", "port"}},
		{name: "metrics address", args: []string{"--metrics-bind-address=10349"}, want: []string{"--metrics-bind-address", "host:port"}},
		{name: "state dir", args: []string{"--state-dir=here"}, want: []string{"--state-dir"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOptions()
			set := pflag.NewFlagSet("kubecri", pflag.ContinueOnError)
			for _, group := range o.flags().FlagSets {
				set.AddFlagSet(group)
			}
			if err := set.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := o.complete()
			if (err != nil) != (test.want != nil) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestHelpGroupsTheFlags(t *testing.T) {
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"CRI flags:", "Cluster flags:", "Slots flags:", "--runtime-endpoint", "--logging-format"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("--help does not show %q", part)
		}
	}
}
