package cli

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"

	proa "proa.dev/run"
)

func versionCommand() Command {
	return Command{
		Name: "version", Short: "say which proa this is, and which API it serves",
		Long: "Prints the version of this program, of the API it serves, and of the Go it was built with.",
		Setup: func(*flag.FlagSet) func(context.Context, *Env, []string) error {
			return func(_ context.Context, env *Env, args []string) error {
				if err := noArguments("version", args); err != nil {
					return err
				}
				fmt.Fprintf(env.Out, "proa %s\nAPI  %s\n%s %s/%s\n", buildVersion(), proa.Version().GitVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return nil
			}
		},
	}
}

// buildVersion is what the Go tool noted when it built the program.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
