package cli

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/machine/nodefolder"
)

func logsCommand() command.Command {
	return command.Command{
		Name: "logs", Args: "[NODE]", Short: "show the log of the server, of a node's agent or of its container runtime",
		Long: `
Shows the log of the server of the data folder: of the API server, the controllers and the scheduler, which are one process. With the name
of a node of this machine it shows the log of that node's agent, and on the first node of the proxy for Ingresses and Gateways.
--containerd shows the log of the node's container runtime. The logs of containers are kubectl's: "kubectl logs POD".

  proa logs -f
  proa logs node-2 --tail 100`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.DataDirFlag(fs)
			follow := fs.Bool("f", false, "follow the log until Ctrl-C")
			lines := fs.Int("tail", -1, "begin with the last `N` lines (default all lines)")
			containerd := fs.Bool("containerd", false, "show the log of the container runtime")
			return func(ctx context.Context, env *command.Env, args []string) error {
				if len(args) > 1 {
					return fmt.Errorf("logs takes the name of one node, but got %d names", len(args))
				}
				c, err := which()
				if err != nil {
					return err
				}
				conf, _, err := c.Config()
				if err != nil {
					return err
				}
				path, err := nodefolder.LogFile(c.Dir, conf.Node.Name, strings.Join(args, ""), *containerd)
				if err != nil {
					return err
				}
				return localcluster.ShowLog(ctx, env.Out, path, localcluster.LogOptions{Follow: *follow, Lines: *lines})
			}
		},
	}
}
