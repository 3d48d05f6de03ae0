package load

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes of `plugin check`, beside 1 for a wrong command line.
const (
	ExitOK  = 0
	ExitBad = 2
)

const checkHelp = `check says all that keeps this binary from loading the plugins, without running
them, as if they were loaded in the order given. For a directory it takes its *.so
files in the order of their names, as at start.

It exits with 0 when all would be opened, with 2 when one would not, and with 1
when the command line is wrong. What the plugin's own code does when it begins
is known only at start.`

// NewPluginCommand makes the command `plugin`, with `plugin check FILE...`. It
// sets code to ExitBad when a file is bad.
func NewPluginCommand[T interface{ GetName() string }](kind Kind[T], code *int) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: fmt.Sprintf("Look after %s plugins", kind.What),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// Not those of the command that this becomes a part of: kube-scheduler's
	// show its own flags.
	cmd.SetHelpFunc((&cobra.Command{}).HelpFunc())
	cmd.SetUsageFunc((&cobra.Command{}).UsageFunc())
	cmd.AddCommand(&cobra.Command{
		Use:          "check FILE|DIRECTORY...",
		Short:        fmt.Sprintf("Say what keeps this binary from loading %s plugins", kind.What),
		Long:         checkHelp,
		Args:         cobra.MinimumNArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := expand(args)
			if err != nil {
				return err
			}
			if !Check(cmd.OutOrStdout(), files, kind.Factory) {
				*code = ExitBad
			}
			return nil
		},
	})
	return cmd
}

// expand replaces directories by their plugins. A directory without any is an error:
// somebody expected one.
func expand(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		stat, err := os.Stat(arg)
		if err != nil || !stat.IsDir() {
			files = append(files, arg) // a file that is not there is a finding
			continue
		}
		in, err := Files(arg)
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, fmt.Errorf("directory %s has no *.so files", arg)
		}
		files = append(files, in...)
	}
	return files, nil
}

// CheckFiles says what is wrong with each bad file, as if they were loaded in this
// order, without running any.
func CheckFiles(files []string, factory string) []*FileError {
	h, err := self()
	_, bad := checkAll(h, err, files, factory)
	return bad
}

// Check writes what is wrong with each file, and what would follow at start. It
// returns whether all is well.
func Check(w io.Writer, files []string, factory string) bool {
	bad := CheckFiles(files, factory)
	findings := map[string][]Finding{}
	for _, b := range bad {
		findings[b.File] = b.Findings
	}
	rebuild := false
	for _, file := range files {
		if len(findings[file]) == 0 {
			fmt.Fprintf(w, "OK    %s\n", file)
			continue
		}
		fmt.Fprintf(w, "FAIL  %s\n", file)
		for _, f := range findings[file] {
			fmt.Fprintf(w, "      %s: it %s\n", f.Reason, f.Text)
			rebuild = rebuild || f.Reason == NotAPlugin || f.Reason == WrongBuild || f.Reason == WrongPackages || f.Reason == WrongFactory
		}
	}
	if len(bad) == 0 {
		fmt.Fprintf(w, "At start: all %d would be opened.\n", len(files))
		return true
	}
	fmt.Fprintf(w, "At start: with policy %q, this binary would not start; with %q, it would start without %d of %d.\n", Refuse, Skip, len(bad), len(files))
	if rebuild {
		fmt.Fprintln(w, Rebuild)
	}
	return false
}
