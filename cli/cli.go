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

// errUsage says that the help has been shown already.
var errUsage = errors.New("usage")

func commands() []Command {
	return []Command{serverCommand(), upCommand(), downCommand(), statusCommand(), kubectlCommand(), versionCommand()}
}

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
	fmt.Fprintf(env.Err, "proa: %v\n", err)
	return 1
}

// exitCode is the code of a program that was run for the user.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func run(ctx context.Context, env *Env, args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		if len(args) > 1 {
			return run(ctx, env, []string{args[1], "--help"})
		}
		overview(env.Out)
		return nil
	}
	for _, c := range commands() {
		if c.Name != args[0] {
			continue
		}
		fs := flag.NewFlagSet("proa "+c.Name, flag.ContinueOnError)
		fs.SetOutput(env.Err)
		do := c.Setup(fs)
		if c.Raw {
			return do(ctx, env, args[1:])
		}
		fs.Usage = func() { usage(fs.Output(), c, fs) }
		if err := fs.Parse(args[1:]); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil
			}
			return errUsage
		}
		return do(ctx, env, fs.Args())
	}
	return fmt.Errorf("there is no command %q; \"proa help\" lists them", args[0])
}

func overview(w io.Writer) {
	fmt.Fprint(w, "proa is a Kubernetes-compatible system in one binary.\n\nUsage: proa COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.Name, c.Short)
	}
	fmt.Fprint(w, "\n\"proa help COMMAND\" says more about one.\n")
}

func usage(w io.Writer, c Command, fs *flag.FlagSet) {
	fmt.Fprintf(w, "%s\n\nUsage: proa %s [flags] %s\n\n%s\n\nFlags:\n", c.Short, c.Name, c.Args, strings.TrimSpace(c.Long))
	fs.PrintDefaults()
}
