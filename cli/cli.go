// Package cli is the command line of proa. Commands are values of package command; this package has the table of all commands and those
// that are not about starting and stopping clusters.
package cli

import (
	"proa.dev/cli/clusterstatus"
	"proa.dev/cli/command"
	"proa.dev/cli/lifecycle"
)

// commands returns all commands, in the order of help.
func commands() []command.Command {
	return []command.Command{
		lifecycle.UpCommand(), lifecycle.DownCommand(), clusterstatus.StatusCommand(), whyCommand(), traceCommand(), dashboardCommand(),
		listCommand(), logsCommand(), applyCommand(), kubectlCommand(), imagesCommand(), lifecycle.CheckCommand(),
		serverCommand(), agentCommand(), tokenCommand(), lifecycle.InstallCommand(), lifecycle.UninstallCommand(), configCommand(),
		certsCommand(), storeCommand(),
		command.CompletionCommand(commands), command.ManCommand(commands), versionCommand(),
	}
}

// Main runs the command that args name and returns the exit code.
func Main(args []string) int { return command.Main(args, commands()) }
