package helm

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/test/docs"
)

// command is the one of a page that begins so.
func command(t *testing.T, page, begin string) string {
	t.Helper()
	c, err := docs.Command(root, page, begin)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// words are the arguments of a command of a page, without the program.
func words(command string) []string { return strings.Fields(command)[1:] }

// typeHelm runs helm as a page has it, but for where the chart and the images are, which
// install and upgrade need to know, and with more arguments.
func (in *install) typeHelm(page, begin string, more ...string) string {
	in.Helper()
	return in.runHelm(command(in.T, page, begin), more...)
}

// runHelm runs a command of helm, and returns what it prints.
func (in *install) runHelm(command string, more ...string) string {
	in.Helper()
	args := words(strings.ReplaceAll(command, "deploy/helm/kubeslot", in.Chart))
	if args[0] == "install" || args[0] == "upgrade" {
		args = append(args, in.Values()...)
	}
	if args[0] != "show" {
		args = append(args, "--timeout", "4m")
	}
	out, err := in.Rig.Helm(in.ctx, append(args, more...)...)
	in.check(err)
	return out
}

// typeKubectl runs kubectl as a page has it, and returns what it prints.
func (in *install) typeKubectl(page, begin string) string {
	in.Helper()
	return in.kubectl(words(command(in.T, page, begin))...)
}
