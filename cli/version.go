package cli

import (
	"context"
	"flag"
	"fmt"
	"runtime"

	"proa.dev/cli/command"
	"proa.dev/internal/buildinfo"
	proa "proa.dev/run"
)

func versionCommand() command.Command {
	return command.Command{
		Name: "version", Short: "show the version of proa, and of the API it serves",
		Long: `
Prints the version of this program, the commit it was built from and when that was made, the version of Kubernetes whose API
it serves, and the Go it was built with. "proa --version" does the same.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			format := command.OutputFlag(fs)
			return func(_ context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("version", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				v := thisVersion()
				if output == "json" {
					return command.WriteJSON(env.Out, v)
				}
				fmt.Fprintf(env.Out, "proa %s\n%sAPI  %s\n%s %s\n", v.Version, v.commitLine(), v.API, v.Go, v.Platform)
				return nil
			}
		},
	}
}

// version describes this program.
type version struct {
	Version string `json:"version"`
	// Commit is the commit from which the program was built, and Date its time; both are empty if it was not built in a
	// git repository.
	Commit string `json:"commit,omitempty"`
	Date   string `json:"date,omitempty"`
	// Modified says that files differed from the commit.
	Modified bool   `json:"modified,omitempty"`
	API      string `json:"api"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// commitLine describes the commit; it is empty if the commit is not known.
func (v version) commitLine() string {
	if v.Commit == "" {
		return ""
	}
	changed := ""
	if v.Modified {
		changed = ", with changes"
	}
	return fmt.Sprintf("commit %s of %s%s\n", v.Commit, v.Date, changed)
}

// thisVersion describes the build of this program.
func thisVersion() version {
	b := buildinfo.Read()
	return version{Version: b.Version, Commit: b.Commit, Date: b.Date, Modified: b.Modified,
		API: proa.Version().GitVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
}
