package cli

import (
	"context"
	"flag"
	"fmt"
	"text/tabwriter"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/nodefolder"
)

func listCommand() command.Command {
	return command.Command{
		Name: "list", Short: "list the clusters of this machine that you have started",
		Long: `
Lists the clusters that you have started on this machine, those that are stopped included: their name, which is that of their kubectl
context, whether they run, how many nodes they have here, where the API server is, and their data folder. Only root
lists the clusters that root has started.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			format := command.OutputFlag(fs)
			return func(_ context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("list", args); err != nil {
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

func listClusters(env *command.Env, output string) error {
	dirs, err := datafolder.Known()
	if err != nil {
		return err
	}
	all := []listedCluster{}
	for _, dir := range dirs {
		if c := (localcluster.Cluster{Dir: dir}); c.Exists() == nil {
			all = append(all, listed(c))
		}
	}
	if output == "json" {
		return command.WriteJSON(env.Out, all)
	}
	if len(all) == 0 {
		fmt.Fprintf(env.Out, "There is no cluster yet; \"%s up\" makes one.\n", localcluster.Program())
		return nil
	}
	w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATUS\tNODES\tSERVER\tDATA FOLDER")
	for _, c := range all {
		status := "stopped"
		if c.Running {
			status = fmt.Sprintf("running (process %d)", c.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", command.Printable(c.Name), status, c.Nodes, command.Printable(c.Server),
			command.Printable(c.DataDir))
	}
	return w.Flush()
}

// listed returns what the files of a cluster tell about it. What cannot be read is left out.
func listed(c localcluster.Cluster) listedCluster {
	out := listedCluster{Name: "-", DataDir: c.Dir}
	if pid, err := c.ServerPID(); err == nil && pid != 0 {
		out.Running, out.PID = true, pid
	}
	if a, err := c.Access(); err == nil {
		out.Name, out.Server = a.Context, a.Server()
	}
	if conf, found, err := c.Config(); err == nil && found {
		out.Nodes = len(nodefolder.OfConfig(&conf.Config)) + conf.Simulate
	}
	return out
}
