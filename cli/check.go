package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	host "proa.dev/node/check"
	proa "proa.dev/run"
)

func checkCommand() Command {
	return Command{
		Name: "check", Short: "say whether this host can run nodes, and what it lacks",
		Long: `
Looks at the kernel, its modules and limits, at cgroups, ports, disk and clock, and at the programs that a node runs
beside proa, and says row by row what is there, what is missing, and what to do about it. It changes nothing. It takes the flags
of "proa up", and says of the same ports whether they are free.

The exit code is 1 if something is missing without which nodes do not run. Notes are about what works less well than it
could.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			said := serverFlags(fs)
			var u upper
			fs.StringVar(&u.config, "config", "", "config `FILE` (YAML) with the same names as the flags of \"proa server\"")
			format := outputFlag(fs)
			return func(_ context.Context, env *Env, args []string) error {
				if err := noArguments("check", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				where, err := u.whereToLook(said)
				if err != nil {
					return err
				}
				return showChecks(env.Out, host.Rows(host.Look(where)), output)
			}
		},
	}
}

// whereToLook says what "proa up" with the same flags will use.
func (u *upper) whereToLook(said proa.Said) (host.Where, error) {
	conf, _, err := u.settle(said)
	if err != nil {
		return host.Where{}, err
	}
	if conf.Node.Name == "" {
		conf.Node.Name = proa.DefaultNodeName() // a node is what is asked about
	}
	c := cluster{conf.DataDir}
	bin, carried, err := proa.FindPrograms()
	if err != nil {
		return host.Where{}, err
	}
	if conf.Node.BinDir != "" {
		bin, carried = conf.Node.BinDir, nil
	}
	own, err := u.ownAddresses(c)
	if err != nil {
		return host.Where{}, err
	}
	where := host.Where{DataDir: c.dir, BinDir: bin, Carried: carried, Parts: []string{"containerd", "containerd-shim-runc-v2", "runc", "pause", "proa-cni"}}
	for i, address := range conf.APIAddresses() {
		p := host.Port{Address: address, For: "API server", Flag: "--listen", Own: slices.Contains(own, address)}
		if i > 0 {
			p.For, p.Flag = "API server of Pods", "--listen or another address with --node-ip"
		}
		where.Ports = append(where.Ports, p)
	}
	if conf.Node.Port != 0 {
		at := agentAddress(conf)
		where.Ports = append(where.Ports, host.Port{Address: at, For: "node agent", Flag: "--node-port", Replaceable: true, Own: slices.Contains(own, at)})
	}
	return where, nil
}

// ownAddresses are where the cluster of the folder listens, if it runs.
func (u *upper) ownAddresses(c cluster) ([]string, error) {
	pid, err := c.pid()
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
