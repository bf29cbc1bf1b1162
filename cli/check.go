package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	host "proa.dev/node/check"
)

func checkCommand() Command {
	return Command{
		Name: "check", Short: "say whether this host can run nodes, and what it lacks",
		Long: `
Looks at the kernel, its modules and limits, at cgroups, ports, disk and clock, and at the programs that a node runs
beside proa, and says row by row what is there, what is missing, and what to do about it. It only reads.

The exit code is 1 if something is missing without which nodes do not run. Notes are about what works less well than it
could.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			bin := fs.String("bin-dir", "", "look for containerd and its companions in `DIR`; beside this program if not said")
			output := fs.String("o", "", "`FORMAT` of the output: json, or empty for people")
			return func(_ context.Context, env *Env, args []string) error {
				if err := noArguments("check", args); err != nil {
					return err
				}
				if *output != "" && *output != "json" {
					return fmt.Errorf("-o knows json and no other format, but got %q", *output)
				}
				c, err := which()
				if err != nil {
					return err
				}
				where, err := whereToLook(c, *bin)
				if err != nil {
					return err
				}
				return showChecks(env.Out, host.Rows(host.Look(where)), *output)
			}
		},
	}
}

// whereToLook says what a node in the cluster's folder will use.
func whereToLook(c cluster, bin string) (host.Where, error) {
	if bin == "" {
		self, err := os.Executable()
		if err != nil {
			return host.Where{}, fmt.Errorf("find this program: %w", err)
		}
		if self, err = filepath.EvalSymlinks(self); err != nil {
			return host.Where{}, fmt.Errorf("find this program: %w", err)
		}
		bin = filepath.Dir(self)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return host.Where{}, err
	}
	pid, _ := c.pid() // a folder that is not there yet has none
	return host.Where{
		DataDir: c.dir, BinDir: bin, Running: pid != 0,
		Parts: []string{"containerd", "containerd-shim-runc-v2", "runc", "pause", "proa-cni"},
		Ports: []host.Port{{Number: 6443, For: "API server", Flag: "--listen"}, {Number: 10250, For: "node agent", Flag: "--node-port"}},
	}, nil
}

func showChecks(w io.Writer, rows []host.Row, format string) error {
	ready := host.Ready(rows)
	var err error
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(map[string]any{"ready": ready, "rows": rows})
	} else {
		err = printChecks(w, rows, painter(w))
	}
	if err == nil && !ready {
		err = exitCode(1)
	}
	return err
}

func printChecks(w io.Writer, rows []host.Row, paint func(host.State) string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	lacking := 0
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s", paint(r.State), r.Name)
		if r.Says != "" {
			fmt.Fprintf(table, "\t%s", r.Says)
		}
		fmt.Fprintln(table)
		if r.Do != "" {
			fmt.Fprintf(table, "%s\t\t→ %s\n", paint(""), r.Do)
		}
		if r.State == host.Missing {
			lacking++
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch lacking {
	case 0:
		fmt.Fprintln(w, "\nThis host can run nodes.")
	case 1:
		fmt.Fprintln(w, "\nThis host cannot run nodes: one thing is missing.")
	default:
		fmt.Fprintf(w, "\nThis host cannot run nodes: %d things are missing.\n", lacking)
	}
	return nil
}

// painter colours the states, if there is a terminal to show colours. All of its words have the same number of bytes that
// are not seen, so that columns stay straight.
func painter(w io.Writer) func(host.State) string {
	file, ok := w.(*os.File)
	if ok {
		info, err := file.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	colour := map[host.State]string{host.OK: "32", host.Note: "33", host.Missing: "31", "": "39"}
	return func(s host.State) string {
		if !ok {
			return string(s)
		}
		return "\x1b[" + colour[s] + "m" + string(s) + "\x1b[0m"
	}
}
