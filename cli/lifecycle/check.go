package lifecycle

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	host "proa.dev/node/preflight"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/run/settings"
)

// CheckCommand returns the command "proa check".
func CheckCommand() command.Command {
	return command.Command{
		Name: "check", Short: "check whether this host can run nodes, and what it lacks",
		Long: `
Looks at the kernel, its modules and limits, at cgroups, ports, disk and clock, and at the programs that a node runs
beside proa, and reports row by row what it has found, what is missing, and what to do about it. It changes nothing. It takes the
flags of "proa up", and checks whether the same ports are free.

The exit code is 1 if something is missing without which nodes do not run. Notes are about what works less well than it
could.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			u, values := upFlags(fs)
			format := command.OutputFlag(fs)
			return func(_ context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("check", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				where, err := u.preflightTargets(values)
				if err != nil {
					return err
				}
				return showChecks(env.Out, host.Rows(host.GatherFacts(where)), output)
			}
		},
	}
}

// preflightTargets returns what "proa up" with the same flags would use.
func (u *upCommandRun) preflightTargets(values settings.Values) (host.Targets, error) {
	conf, _, err := u.plan(values)
	if err != nil {
		return host.Targets{}, err
	}
	if conf.Node.Name == "" {
		conf.Node.Name = settings.DefaultNodeName() // the command checks for a node in any case
	}
	c := localcluster.Cluster{Dir: conf.DataDir}
	bin, carried, err := datafolder.FindPrograms()
	if err != nil {
		return host.Targets{}, err
	}
	if conf.Node.BinDir != "" {
		bin, carried = conf.Node.BinDir, nil
	}
	own, err := u.ownAddresses(c)
	if err != nil {
		return host.Targets{}, err
	}
	where := host.Targets{DataDir: c.Dir, BinDir: bin, Carried: carried,
		Parts: []string{"containerd", "containerd-shim-runc-v2", "runc", "pause", "proa-cni"}}
	for i, address := range conf.APIAddresses() {
		p := host.Port{Address: address, Purpose: "API server", Flag: "--listen", Own: slices.Contains(own, address)}
		if i > 0 {
			p.Purpose, p.Flag = "API server of Pods", "--listen or another address with --node-ip"
		}
		where.Ports = append(where.Ports, p)
	}
	if conf.Node.Port != 0 {
		at := agentAddress(conf)
		where.Ports = append(where.Ports,
			host.Port{Address: at, Purpose: "node agent", Flag: "--node-port", Replaceable: true, Own: slices.Contains(own, at)})
	}
	return where, nil
}

// ownAddresses returns the addresses at which the cluster of the folder listens, if it runs.
func (u *upCommandRun) ownAddresses(c localcluster.Cluster) ([]string, error) {
	pid, err := c.ServerPID()
	if err != nil || pid == 0 {
		return nil, err
	}
	conf, err := proa.Load("", u.stored)
	if err != nil {
		return nil, err
	}
	out := conf.APIAddresses()
	if conf.Node.Name != "" {
		out = append(out, agentAddress(conf))
	}
	return out, nil
}

func agentAddress(conf proa.Config) string { return fmt.Sprintf(":%d", conf.Node.Port) }

func showChecks(w io.Writer, rows []host.Row, format string) error {
	ready := host.Ready(rows)
	var err error
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(map[string]any{"ready": ready, "rows": rows})
	} else {
		err = printChecks(w, rows, colourFunc(w))
	}
	if err == nil && !ready {
		err = command.ExitCode(1)
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
		rest := strings.TrimRight(fmt.Sprintf("%-*s  %s", name, r.Name, r.Finding), " ")
		fmt.Fprintf(&b, "%s  %s\n", paint(r.State, fmt.Sprintf("%-*s", state, r.State)), rest)
		if r.Remedy != "" {
			fmt.Fprintf(&b, "%*s  → %s\n", state+2+name, "", r.Remedy)
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

// colourFunc returns a function that colours the states if the output is a terminal.
func colourFunc(w io.Writer) func(state host.State, word string) string {
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
