package command

import "github.com/spf13/cobra"

// helpTemplate is cobra's, except that a command shows its own flags alone, as those of kubectl do.
const helpTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .Aliases}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Available Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

Flags:
{{.LocalNonPersistentFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}
{{if .HasAvailableSubCommands}}
Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}
Use "{{.Root.CommandPath}} options" for a list of global command-line options (applies to all commands).
`

// globalOptions shows the flags that all commands have.
func (o *options) globalOptions() *cobra.Command {
	cmd := &cobra.Command{
		Use: "options", Short: "Flags that all commands have", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Hidden: true, // the help of each command names it
		RunE:   func(cmd *cobra.Command, _ []string) error { return cmd.Usage() },
	}
	cmd.SetUsageTemplate("The following options can be passed to any command:\n\n{{.InheritedFlags.FlagUsagesWrapped 80}}")
	return cmd
}
