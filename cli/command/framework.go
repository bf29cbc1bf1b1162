// Package command is the framework of the command line: commands as values, how they are found, their flags and help, and what is
// generated from them: shell completion and manual pages.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"proa.dev/run/settings"
)

// Env has the standard streams of a command.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Plugin says that kubectl runs the command as a plugin.
	Plugin bool
}

// Command is a subcommand of proa.
type Command struct {
	Name  string
	Args  string // the arguments, for the usage line
	Short string // one line
	Long  string // prose
	// Words are the values that the first argument may have, for shell completion.
	Words []string
	// Settings are the settings of a server or an agent that are flags of the command; help shows them in groups.
	Settings func() []settings.Setting
	// Setup declares flags and returns the function that runs the command with the remaining arguments.
	Setup func(*flag.FlagSet) func(ctx context.Context, env *Env, args []string) error
	// Raw commands parse their own arguments.
	Raw bool
}

// errUsage is the error of a command whose mistake has been shown already.
var errUsage = errors.New("usage")

// ExitCode is the error of a command that has reported the reason and ends with this exit code.
type ExitCode int

func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Interrupted is the exit code of a command that was ended by Ctrl-C, as shells have it.
const Interrupted = 130

// Main runs the command that args name and returns the exit code of the process.
func Main(args []string, all []Command) int {
	env := &Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	ctx, stop := interruptible(context.Background())
	defer stop()
	words := args[1:]
	if name, isPlugin := pluginCommand(args[0]); isPlugin {
		env.Plugin, words = true, append([]string{name}, words...)
	}
	err := Run(ctx, env, all, words)
	var exit ExitCode
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	case errors.As(err, &exit):
		return int(exit)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(env.Err, "proa: interrupted")
		return Interrupted
	}
	fmt.Fprintf(env.Err, "proa: %s\n", Printable(err.Error()))
	return 1
}

// repeatedSignal is the time after the first signal within which another one counts as a repetition: timeout(1), sudo and make send a
// signal to a command and then to its process group.
const repeatedSignal = time.Second / 2

// interruptible returns a context that SIGINT or SIGTERM cancels. A second signal ends the process at once, unless it
// only repeats the first.
func interruptible(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(repeatedSignal, stop) })
	return ctx, stop
}

// Run runs the command that args name.
func Run(ctx context.Context, env *Env, all []Command, args []string) error {
	if len(args) == 0 || asksForHelp(args[0]) {
		return help(env, all, args[min(len(args), 1):])
	}
	if args[0] == "--version" || args[0] == "-version" {
		args = append([]string{"version"}, args[1:]...)
	}
	c, err := Find(all, args[0])
	if err != nil {
		return err
	}
	fs := newFlags(c)
	do := c.Setup(fs)
	if c.Raw {
		return do(ctx, env, args[1:])
	}
	rest, err := parseFlags(fs, args[1:])
	if errors.Is(err, flag.ErrHelp) {
		usage(env.Out, c, fs)
		return nil
	}
	if err != nil {
		fmt.Fprintf(env.Err, "proa %s: %v\n\"proa help %s\" shows its flags.\n", c.Name, err, c.Name)
		return errUsage
	}
	return do(ctx, env, rest)
}

func asksForHelp(word string) bool {
	return slices.Contains([]string{"help", "--help", "-help", "-h"}, word)
}

// help shows the help of the command that words name, or the overview of all commands. kubectl has a help of its own; this one describes
// how proa runs it.
func help(env *Env, all []Command, words []string) error {
	if len(words) == 0 || asksForHelp(words[0]) {
		overview(env.Out, all)
		return nil
	}
	c, err := Find(all, words[0])
	if err != nil {
		return err
	}
	fs := newFlags(c)
	c.Setup(fs)
	usage(env.Out, c, fs)
	return nil
}

// Find returns the command of a name.
func Find(all []Command, name string) (Command, error) {
	at := slices.IndexFunc(all, func(c Command) bool { return c.Name == name })
	switch {
	case at >= 0:
		return all[at], nil
	case strings.HasPrefix(name, "-"):
		return Command{}, fmt.Errorf("%s stands before the command; write \"proa COMMAND %s\"", name, name)
	}
	return Command{}, fmt.Errorf("there is no command %q; \"proa help\" lists them", name)
}

func newFlags(c Command) *flag.FlagSet {
	fs := flag.NewFlagSet("proa "+c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run shows errors and help itself
	fs.Usage = func() {}
	return fs
}

// parseFlags parses flags before, between and after the arguments, and returns the arguments. Everything after "--" is an argument.
func parseFlags(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for len(args) > 0 {
		word := args[0]
		switch {
		case word == "--":
			return append(rest, args[1:]...), nil
		case len(word) < 2 || word[0] != '-':
			rest, args = append(rest, word), args[1:]
			continue
		}
		n := min(flagWords(fs, word), len(args))
		if err := fs.Parse(args[:n]); err != nil {
			return nil, err
		}
		args = args[n:]
	}
	return rest, nil
}

// flagWords returns how many words a flag takes with its value: one for --name=value and for switches, otherwise two.
func flagWords(fs *flag.FlagSet, word string) int {
	name, _, hasValue := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	f := fs.Lookup(name)
	if f == nil || hasValue {
		return 1
	}
	if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		return 1
	}
	return 2
}

func overview(w io.Writer, all []Command) {
	fmt.Fprint(w, "proa is a Kubernetes-compatible system in one binary.\n\nUsage: proa COMMAND [flags]\n\n")
	for _, c := range all {
		fmt.Fprintf(w, "  %-10s %s\n", c.Name, c.Short)
	}
	fmt.Fprint(w, "\nStart with \"proa up\". \"proa help COMMAND\" describes a command and its flags.\n")
}

func usage(w io.Writer, c Command, fs *flag.FlagSet) {
	fmt.Fprintf(w, "proa %s: %s.\n\nUsage: %s\n\n%s\n", c.Name, c.Short, usageLine(c), strings.TrimSpace(c.Long))
	for _, g := range flagGroups(c, fs) {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, f := range g.flags {
			name, help := flagHelp(f)
			fmt.Fprintf(w, "  %s\n        %s\n", name, help)
		}
	}
}

func usageLine(c Command) string {
	return strings.Join(strings.Fields("proa "+c.Name+" [flags] "+c.Args), " ")
}

// flagGroup is a group of a command's flags under one heading of its help.
type flagGroup struct {
	title string
	flags []*flag.Flag
}

// flagGroups returns the command's own flags by name, followed by the groups of its settings.
func flagGroups(c Command, fs *flag.FlagSet) (out []flagGroup) {
	own := flagGroup{title: "Flags"}
	var groups []settings.SettingGroup
	if c.Settings != nil {
		groups = settings.Group(c.Settings())
	}
	grouped := map[string]bool{}
	for _, g := range groups {
		in := flagGroup{title: g.Title}
		for _, s := range g.Settings {
			grouped[s.Name] = true
			in.flags = append(in.flags, fs.Lookup(s.Name))
		}
		out = append(out, in)
	}
	fs.VisitAll(func(f *flag.Flag) {
		if !grouped[f.Name] {
			own.flags = append(own.flags, f)
		}
	})
	if len(own.flags) > 0 {
		out = slices.Insert(out, 0, own)
	}
	return out
}

// flagHelp returns a flag with the placeholder of its value, and its description.
func flagHelp(f *flag.Flag) (name, help string) {
	value, help := flag.UnquoteUsage(f)
	name = "--" + f.Name
	if value != "" {
		name += " " + value
	}
	if f.DefValue != "" && f.DefValue != "false" {
		help += " (default " + f.DefValue + ")"
	}
	return name, help
}
