package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// CompletionCommand prints completion scripts for the commands.
func CompletionCommand(commands func() []Command) Command {
	return Command{
		Name: "completion", Args: "bash|zsh|fish", Words: []string{"bash", "zsh", "fish"}, Short: "print a script for the completion of commands and flags in your shell",
		Long: `
Prints a script for your shell. Load it for one session, or in every one from the shell's startup file:

  source <(proa completion bash)                                    # in ~/.bashrc
  source <(proa completion zsh)                                     # in ~/.zshrc, after compinit
  proa completion fish > ~/.config/fish/completions/proa.fish`,
		Setup: func(*flag.FlagSet) func(context.Context, *Env, []string) error {
			return func(_ context.Context, env *Env, args []string) error {
				if len(args) != 1 {
					return errors.New("name the shell: \"proa completion bash\", \"proa completion zsh\" or \"proa completion fish\"")
				}
				switch args[0] {
				case "bash":
					return bashCompletion(env.Out, commands())
				case "zsh":
					return zshCompletion(env.Out, commands())
				case "fish":
					return fishCompletion(env.Out, commands())
				}
				return fmt.Errorf("there is completion for bash, zsh and fish, not for %q", args[0])
			}
		},
	}
}

// completed is a command with the flags that completion offers.
type completed struct {
	Command
	flags []*flag.Flag
}

// flagWords returns the flags with their dashes.
func (c completed) flagWords() (out []string) {
	for _, f := range c.flags {
		out = append(out, "--"+f.Name)
	}
	return out
}

// valued tells whether the flag takes a value, and whether that is the path of a file or a folder.
func valued(f *flag.Flag) (valued, isFile bool) {
	word, _ := flag.UnquoteUsage(f)
	return word != "", word == "FILE" || word == "DIR"
}

// allCompleted returns every command with its flags.
func allCompleted(commands []Command) (out []completed) {
	for _, c := range commands {
		fs := newFlags(c)
		c.Setup(fs)
		one := completed{Command: c}
		fs.VisitAll(func(f *flag.Flag) { one.flags = append(one.flags, f) })
		out = append(out, one)
	}
	return out
}

func commandNames(all []completed) (out []string) {
	for _, c := range all {
		out = append(out, c.Name)
	}
	return append(out, "help")
}

func bashCompletion(w io.Writer, commands []Command) error {
	all := allCompleted(commands)
	var b strings.Builder
	b.WriteString("# bash completion for proa\n_proa() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n\tCOMPREPLY=()\n")
	b.WriteString("\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n")
	fmt.Fprintf(&b, "\t\tCOMPREPLY=($(compgen -W %s -- \"$cur\"))\n\t\treturn\n\tfi\n", shellQuote(strings.Join(commandNames(all), " ")))
	b.WriteString("\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range all {
		if c.Raw {
			continue
		}
		var files []string
		for _, f := range c.flags {
			if _, isFile := valued(f); isFile {
				files = append(files, "--"+f.Name)
			}
		}
		fmt.Fprintf(&b, "\t%s)\n", c.Name)
		if len(files) > 0 {
			fmt.Fprintf(&b, "\t\tcase $prev in %s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;; esac\n", strings.Join(files, "|"))
		}
		fmt.Fprintf(&b, "\t\twords=%s ;;\n", shellQuote(strings.Join(slices.Concat(c.Words, c.flagWords()), " ")))
	}
	fmt.Fprintf(&b, "\thelp) words=%s ;;\n", shellQuote(strings.Join(commandNames(all), " ")))
	b.WriteString("\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\t[ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F _proa proa\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func zshCompletion(w io.Writer, commands []Command) error {
	all := allCompleted(commands)
	var b strings.Builder
	b.WriteString("#compdef proa\n# zsh completion for proa\n_proa() {\n\tlocal -a commands\n\tcommands=(\n")
	for _, c := range all {
		fmt.Fprintf(&b, "\t\t%s\n", shellQuote(c.Name+":"+c.Short))
	}
	b.WriteString("\t\t'help:describe a command and its flags'\n\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tcase $words[2] in\n")
	for _, c := range all {
		if c.Raw {
			continue
		}
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments -S", c.Name)
		for _, f := range c.flags {
			name, help := flagHelp(f)
			name, value, _ := strings.Cut(name, " ")
			spec := name + "[" + zshEscape(help) + "]"
			switch is, isFile := valued(f); {
			case isFile:
				spec += ":" + value + ":_files"
			case is:
				spec += ":" + zshEscape(value) + ":"
			}
			fmt.Fprintf(&b, " \\\n\t\t\t%s", shellQuote(spec))
		}
		rest := "*:file:_files"
		if len(c.Words) > 0 {
			rest = "2:word:(" + strings.Join(c.Words, " ") + ")"
			fmt.Fprintf(&b, " \\\n\t\t\t%s", shellQuote("1: :"))
		}
		fmt.Fprintf(&b, " \\\n\t\t\t%s ;;\n", shellQuote(rest))
	}
	b.WriteString("\thelp) _describe command commands ;;\n\tesac\n}\ncompdef _proa proa\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// zshEscape escapes the characters that separate the parts of a specification of _arguments.
func zshEscape(text string) string {
	return strings.NewReplacer("[", "\\[", "]", "\\]", ":", "\\:").Replace(text)
}

func fishCompletion(w io.Writer, commands []Command) error {
	var b strings.Builder
	b.WriteString("# fish completion for proa\ncomplete -c proa -f\n")
	for _, c := range allCompleted(commands) {
		fmt.Fprintf(&b, "complete -c proa -n __fish_use_subcommand -a %s -d %s\n", c.Name, shellQuote(c.Short))
		seen := "-n " + shellQuote("__fish_seen_subcommand_from "+c.Name)
		if len(c.Words) > 0 {
			fmt.Fprintf(&b, "complete -c proa %s -a %s\n", seen, shellQuote(strings.Join(c.Words, " ")))
		}
		for _, f := range c.flags {
			_, help := flagHelp(f)
			extra := ""
			switch is, isFile := valued(f); {
			case isFile:
				extra = " -r -F"
			case is:
				extra = " -x"
			}
			fmt.Fprintf(&b, "complete -c proa %s -l %s%s -d %s\n", seen, f.Name, extra, shellQuote(help))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shellQuote quotes a text as one word of any shell.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
