package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ManCommand prints manual pages of the commands.
func ManCommand(commands func() []Command) Command {
	return Command{
		Name: "man", Args: "[COMMAND] | --output-dir DIR", Short: "print a manual page, or write all of them to a folder",
		Long: `
Prints the manual page of a command, or of proa itself, in the format of man(7), or writes a page for every command:

  proa man up | man -l -
  proa man --output-dir /usr/local/share/man/man1`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			dir := fs.String("output-dir", "", "write all pages into the folder `DIR`, which must exist")
			return func(_ context.Context, env *Env, args []string) error {
				switch {
				case *dir != "" && len(args) > 0:
					return errors.New("--output-dir writes the pages of all commands; leave out the command")
				case *dir != "":
					return writeManPages(env, commands(), *dir)
				case len(args) > 1:
					return errors.New("man prints the page of one command; leave out the other names")
				case len(args) == 0:
					_, err := fmt.Fprint(env.Out, overviewPage(commands()))
					return err
				}
				c, err := Find(commands(), args[0])
				if err == nil {
					_, err = fmt.Fprint(env.Out, manPage(c))
				}
				return err
			}
		},
	}
}

func writeManPages(env *Env, commands []Command, dir string) error {
	pages := map[string]string{"proa.1": overviewPage(commands)}
	for _, c := range commands {
		pages["proa-"+c.Name+".1"] = manPage(c)
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // manual pages are for everybody
			return fmt.Errorf("write a manual page: %w", err)
		}
	}
	fmt.Fprintf(env.Out, "Wrote %d pages to %s\n", len(pages), dir)
	return nil
}

// overviewPage returns the manual page of proa itself.
func overviewPage(commands []Command) string {
	var b strings.Builder
	b.WriteString(".TH PROA 1\n.SH NAME\nproa \\- a Kubernetes-compatible system in one binary\n.SH SYNOPSIS\n.B proa\n.I COMMAND\n[flags]\n.SH COMMANDS\n")
	for _, c := range commands {
		fmt.Fprintf(&b, ".TP\n.BR proa\\-%s (1)\n%s.\n", roff(c.Name), roff(c.Short))
	}
	return b.String()
}

// manPage returns the manual page of a command.
func manPage(c Command) string {
	fs := newFlags(c)
	c.Setup(fs)
	var b strings.Builder
	fmt.Fprintf(&b, ".TH PROA-%s 1\n.SH NAME\nproa\\-%s \\- %s\n.SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n.nf\n%s\n.fi\n",
		strings.ToUpper(c.Name), roff(c.Name), roff(c.Short), roff(usageLine(c)), roff(strings.TrimSpace(c.Long)))
	for _, g := range flagGroups(c, fs) {
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(g.title)))
		for _, f := range g.flags {
			name, help := flagHelp(f)
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(name), roff(help))
		}
	}
	return b.String()
}

// roff escapes what man(7) would take for requests.
func roff(text string) string {
	text = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = "\\&" + line
		}
	}
	return strings.Join(lines, "\n")
}
