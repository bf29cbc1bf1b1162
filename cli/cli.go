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
)

// Env is what a command has of the world.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
}

// Command is one word of the command line.
type Command struct {
	Name  string
	Args  string // what follows the flags, for the usage line
	Short string // one line
	Long  string // prose
	// Setup declares flags and returns what to run with the arguments that are left.
	Setup func(*flag.FlagSet) func(ctx context.Context, env *Env, args []string) error
	// Raw commands parse their own arguments.
	Raw bool
}

// commands are all words, in the order in which one meets them.
func commands() []Command {
	return []Command{
		upCommand(), downCommand(), statusCommand(), checkCommand(), kubectlCommand(),
		imagesCommand(), serverCommand(), agentCommand(), tokenCommand(), certsCommand(), versionCommand(),
	}
}

// errUsage says that what is wrong has been shown already.
var errUsage = errors.New("usage")

// exitCode is the code a command wants to end with after it has said why.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Main runs the command that args name and returns the exit code.
func Main(args []string) int {
	env := &Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	}
	fmt.Fprintf(env.Err, "proa: %s\n", plain(err.Error()))
	return 1
}

func run(ctx context.Context, env *Env, args []string) error {
	if len(args) == 0 || slices.Contains([]string{"help", "--help", "-help", "-h"}, args[0]) {
		if len(args) > 1 {
			return run(ctx, env, []string{args[1], "--help"})
		}
		overview(env.Out)
		return nil
	}
	at := slices.IndexFunc(commands(), func(c Command) bool { return c.Name == args[0] })
	if at < 0 {
		return fmt.Errorf("there is no command %q; \"proa help\" lists them", args[0])
	}
	c := commands()[at]
	fs := flag.NewFlagSet("proa "+c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors and help are ours to show
	fs.Usage = func() {}
	do := c.Setup(fs)
	if c.Raw {
		return do(ctx, env, args[1:])
	}
	err := fs.Parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		usage(env.Out, c, fs)
		return nil
	}
	if err != nil {
		fmt.Fprintf(env.Err, "proa %s: %v\n\"proa help %s\" shows its flags.\n", c.Name, err, c.Name)
		return errUsage
	}
	return do(ctx, env, fs.Args())
}

func overview(w io.Writer) {
	fmt.Fprint(w, "proa is a Kubernetes-compatible system in one binary.\n\nUsage: proa COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-9s %s\n", c.Name, c.Short)
	}
	fmt.Fprint(w, "\n\"proa up\" is the place to begin. \"proa help COMMAND\" says more about a command.\n")
}

func usage(w io.Writer, c Command, fs *flag.FlagSet) {
	fmt.Fprintf(w, "proa %s: %s.\n\nUsage: %s\n\n%s\n", c.Name, c.Short, strings.Join(strings.Fields("proa "+c.Name+" [flags] "+c.Args), " "), strings.TrimSpace(c.Long))
	heading := "\nFlags:\n"
	fs.VisitAll(func(f *flag.Flag) {
		name, help := flag.UnquoteUsage(f)
		if name != "" {
			name = " " + name
		}
		fmt.Fprintf(w, "%s  --%s%s\n        %s", heading, f.Name, name, help)
		heading = ""
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(w, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(w)
	})
}

// noArguments refuses words after the flags.
func noArguments(name string, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q; flags begin with --", name, args[0])
	}
	return nil
}
