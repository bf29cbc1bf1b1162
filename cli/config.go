package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"proa.dev/cli/command"
	"proa.dev/run/settings"
)

func configCommand() command.Command {
	return command.Command{
		Name: "config", Short: "print a config file with every setting, each with a comment",
		Long: `
Prints a config file for "proa up --config FILE" and "proa server --config FILE". Every setting is in it, with a comment that describes
it; all of them are commented out, so that the file changes nothing until you remove a "#":

  proa config > /etc/proa/config.yaml
  proa up --config /etc/proa/config.yaml`,
		Setup: func(*flag.FlagSet) func(context.Context, *command.Env, []string) error {
			return func(_ context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("config", args); err != nil {
					return err
				}
				return sampleConfig(env.Out)
			}
		},
	}
}

// sampleConfig writes the commented config file.
func sampleConfig(w io.Writer) error {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	command.ServerFlags(fs)
	var b strings.Builder
	b.WriteString("# Settings of proa. Remove the # before a name to set it. Settings that may be given several times take lists:\n# tls-san: [api.example.com, 192.0.2.7]\n")
	for _, g := range settings.Group(settings.All()) {
		fmt.Fprintf(&b, "\n## %s\n", g.Title)
		for _, s := range g.Settings {
			value, help := flag.UnquoteUsage(fs.Lookup(s.Name))
			fmt.Fprintf(&b, "\n%s#%s: %s\n", comment(help), s.Name, value)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comment wraps a text into lines that begin with "# ".
func comment(text string) string {
	const width = 110
	var b strings.Builder
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}
