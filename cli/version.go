package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"

	proa "proa.dev/run"
)

func versionCommand() Command {
	return Command{
		Name: "version", Short: "say which proa this is, and which API it serves",
		Long: `
Prints the version of this program, the commit it was built from and when that was made, the version of Kubernetes whose API
it serves, and the Go it was built with. "proa --version" does the same.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			format := outputFlag(fs)
			return func(_ context.Context, env *Env, args []string) error {
				if err := noArguments("version", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				v := thisVersion()
				if output == "json" {
					return writeJSON(env.Out, v)
				}
				fmt.Fprintf(env.Out, "proa %s\n%sAPI  %s\n%s %s\n", v.Version, v.commitLine(), v.API, v.Go, v.Platform)
				return nil
			}
		},
	}
}

// version is what this program is.
type version struct {
	Version string `json:"version"`
	// Commit is what the program was built from, and Date when that was made; both are empty if it was not built in a git repository.
	Commit string `json:"commit,omitempty"`
	Date   string `json:"date,omitempty"`
	// Modified says that files were not as in the commit.
	Modified bool   `json:"modified,omitempty"`
	API      string `json:"api"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// commitLine is empty when the commit is not known.
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

// thisVersion reads what the Go tool noted when it built the program.
func thisVersion() version {
	v := version{Version: "(devel)", API: proa.Version().GitVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// writeJSON writes a value for programs.
func writeJSON(w interface{ Write([]byte) (int, error) }, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
