package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	host "proa.dev/node/check"
	proa "proa.dev/run"
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
			format := outputFlag(fs)
			return func(_ context.Context, env *Env, args []string) error {
				if err := noArguments("check", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				c, err := which()
				if err != nil {
					return err
				}
				where, err := whereToLook(c, *bin)
				if err != nil {
					return err
				}
				return showChecks(env.Out, host.Rows(host.Look(where)), output)
			}
		},
	}
}

// whereToLook says what a node in the cluster's folder will use.
func whereToLook(c cluster, bin string) (host.Where, error) {
	if bin == "" {
		own, err := proa.Programs(c.dir)
		if err != nil {
			return host.Where{}, err
		}
		bin = own
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

func printChecks(w io.Writer, rows []host.Row, paint func(state host.State, word string) string) error {
	state, name, lacking := 0, 0, 0
	for _, r := range rows {
		state, name = max(state, len(r.State)), max(name, len(r.Name))
		if r.State == host.Missing {
			lacking++
		}
	}
	var b strings.Builder
	for _, r := range rows {
		rest := strings.TrimRight(fmt.Sprintf("%-*s  %s", name, r.Name, r.Says), " ")
		fmt.Fprintf(&b, "%s  %s\n", paint(r.State, fmt.Sprintf("%-*s", state, r.State)), rest)
		if r.Do != "" {
			fmt.Fprintf(&b, "%*s  → %s\n", state+2+name, "", r.Do)
		}
	}
	switch lacking {
	case 0:
		b.WriteString("\nThis host can run nodes.\n")
	case 1:
		b.WriteString("\nThis host cannot run nodes: one thing is missing.\n")
	default:
		fmt.Fprintf(&b, "\nThis host cannot run nodes: %d things are missing.\n", lacking)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// painter colours the states, if there is a terminal to show colours.
func painter(w io.Writer) func(state host.State, word string) string {
	file, ok := w.(*os.File)
	if ok {
		info, err := file.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	colour := map[host.State]string{host.OK: "32", host.Note: "33", host.Missing: "31"}
	return func(s host.State, word string) string {
		if !ok {
			return word
		}
		return "\x1b[" + colour[s] + "m" + word + "\x1b[0m"
	}
}
