// Package cli is the command line: one file a command. A command is a value; Main finds it by the first word.
package cli

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

	proa "proa.dev/run"
)

// Env is what a command has of the world.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
}

// Command is one word of the command line.
type Command struct {
	Name  string
	Args  string // the arguments, for the usage line
	Short string // one line
	Long  string // prose
	// Words are what the first argument may be, for shell completion.
	Words []string
	// Settings are the settings of a server or an agent that are flags of the command; help shows them in groups.
	Settings func() []proa.Setting
	// Setup declares flags and returns what to run with the arguments that are left.
	Setup func(*flag.FlagSet) func(ctx context.Context, env *Env, args []string) error
	// Raw commands parse their own arguments.
	Raw bool
}

// commands are all words, in the order in which one meets them.
func commands() []Command {
	return []Command{
		upCommand(), downCommand(), statusCommand(), listCommand(), logsCommand(), kubectlCommand(), imagesCommand(), checkCommand(),
		serverCommand(), agentCommand(), tokenCommand(), installCommand(), uninstallCommand(), configCommand(), certsCommand(), storeCommand(),
		completionCommand(), manCommand(), versionCommand(),
	}
}

// errUsage says that what is wrong has been shown already.
var errUsage = errors.New("usage")

// exitCode is the code a command wants to end with after it has said why.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// interrupted is the exit code of a command that Ctrl-C has ended, as shells have it.
const interrupted = 130

// Main runs the command that args name and returns the exit code.
func Main(args []string) int {
	env := &Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	ctx, stop := interruptible(context.Background())
	defer stop()
	err := run(ctx, env, args[1:])
	var exit exitCode
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	case errors.As(err, &exit):
		return int(exit)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(env.Err, "proa: interrupted")
		return interrupted
	}
	fmt.Fprintf(env.Err, "proa: %s\n", plain(err.Error()))
	return 1
}

// repeatedSignal is how soon after the first signal another one is the same wish told twice: timeout(1), sudo and make send a signal to a
// command and then to its process group.
const repeatedSignal = time.Second / 2

// interruptible returns a context that SIGINT or SIGTERM cancels. A second signal ends the process at once, unless it only repeats the first.
func interruptible(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(repeatedSignal, stop) })
	return ctx, stop
}

func run(ctx context.Context, env *Env, args []string) error {
	if len(args) == 0 || asksForHelp(args[0]) {
		return help(env, args[min(len(args), 1):])
	}
	if args[0] == "--version" || args[0] == "-version" {
		args = append([]string{"version"}, args[1:]...)
	}
	c, err := find(args[0])
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

// help shows what the command does that words name, or all commands. kubectl has a help of its own; this one tells how proa runs it.
func help(env *Env, words []string) error {
	if len(words) == 0 || asksForHelp(words[0]) {
		overview(env.Out)
		return nil
	}
	c, err := find(words[0])
	if err != nil {
		return err
	}
	fs := newFlags(c)
	c.Setup(fs)
	usage(env.Out, c, fs)
	return nil
}

// find returns the command of a name.
func find(name string) (Command, error) {
	all := commands()
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
	fs.SetOutput(io.Discard) // errors and help are ours to show
	fs.Usage = func() {}
	return fs
}

// parseFlags reads flags before, between and behind the arguments, and returns the arguments. What follows "--" are arguments only.
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

func overview(w io.Writer) {
	fmt.Fprint(w, "proa is a Kubernetes-compatible system in one binary.\n\nUsage: proa COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.Name, c.Short)
	}
	fmt.Fprint(w, "\n\"proa up\" is the place to begin. \"proa help COMMAND\" says more about a command.\n")
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

// flagGroup is a part of a command's flags under a heading of its help.
type flagGroup struct {
	title string
	flags []*flag.Flag
}

// flagGroups returns the flags that only the command has, by name, and then the settings in the groups that they belong to.
func flagGroups(c Command, fs *flag.FlagSet) (out []flagGroup) {
	own := flagGroup{title: "Flags"}
	var groups []proa.SettingGroup
	if c.Settings != nil {
		groups = proa.Group(c.Settings())
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

// flagHelp returns a flag as it is written, with the word for its value, and what it does.
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

// noArguments refuses words that are not flags.
func noArguments(name string, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q; flags begin with --", name, args[0])
	}
	return nil
}
