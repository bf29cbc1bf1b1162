package cli

import (
	"context"
	"flag"
	"fmt"
	"text/tabwriter"

	proa "proa.dev/run"
	"proa.dev/run/machine"
)

func listCommand() Command {
	return Command{
		Name: "list", Short: "list the clusters of this machine that you have started",
		Long: `
Lists the clusters that you have started on this machine, those that are stopped included: their name, which is that of their kubectl
context, whether they run, how many nodes they have here, where the API server is, and their data folder. Those that root has
started are root's to list.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			format := outputFlag(fs)
			return func(_ context.Context, env *Env, args []string) error {
				if err := noArguments("list", args); err != nil {
					return err
				}
				output, err := format()
				if err != nil {
					return err
				}
				return listClusters(env, output)
			}
		},
	}
}

// listedCluster is a row of "proa list".
type listedCluster struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	PID     int    `json:"pid,omitempty"`
	Nodes   int    `json:"nodes"`
	Server  string `json:"server,omitempty"`
	DataDir string `json:"dataDir"`
}

func listClusters(env *Env, output string) error {
	dirs, err := proa.KnownClusters()
	if err != nil {
		return err
	}
	all := []listedCluster{}
	for _, dir := range dirs {
		if c := (cluster{dir}); c.exists() == nil {
			all = append(all, c.listed())
		}
	}
	if output == "json" {
		return writeJSON(env.Out, all)
	}
	if len(all) == 0 {
		fmt.Fprintf(env.Out, "There is no cluster yet; \"%s up\" makes one.\n", program())
		return nil
	}
	w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATUS\tNODES\tSERVER\tDATA FOLDER")
	for _, c := range all {
		status := "stopped"
		if c.Running {
			status = fmt.Sprintf("running (process %d)", c.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", plain(c.Name), status, c.Nodes, plain(c.Server), plain(c.DataDir))
	}
	return w.Flush()
}

// listed returns what the files of a cluster tell about it. What cannot be read is left out.
func (c cluster) listed() listedCluster {
	out := listedCluster{Name: "-", DataDir: c.dir}
	if pid, err := c.pid(); err == nil && pid != 0 {
		out.Running, out.PID = true, pid
	}
	if a, err := c.access(); err == nil {
		out.Name, out.Server = a.Context, a.server()
	}
	if conf, found, err := c.config(); err == nil && found {
		out.Nodes = len(machine.NodeNames(&conf)) + conf.Simulate
	}
	return out
}
