package cli

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"proa.dev/cli/command"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/datafolder"
	"proa.dev/run/goprocess"
	"proa.dev/run/machine"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

func agentCommand() command.Command {
	return command.Command{
		Name: "agent", Short: "run a node of a cluster of another machine, in the foreground",
		Long: `
Joins this machine to a cluster as a node, and runs its Pods until it gets SIGTERM or SIGINT. It needs root. The containers
keep running when it ends, and the next start goes on with them.

On the server's machine, "proa token create" prints the command to type here:

  proa agent --server https://192.0.2.7:6443 --token TOKEN

The token is needed once: then the node has a certificate of its own, in the data folder, and renews it itself. A node that
exists already and has lost its certificate joins again with a token that was made for it: "proa token create --node NAME".

A kubeconfig takes the place of both, also for the API server of another Kubernetes:

  proa agent --kubeconfig FILE

If its user is system:node:NAME, the agent is that node. Otherwise the user, of a bootstrap token or a client certificate, asks
for a certificate of the node by a CertificateSigningRequest. On an API server that is not proa's, nodes need one more role:

  proa agent --print-role | kubectl apply -f -`,
		Settings: settings.ForAgents,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			var cluster settings.AgentCluster
			fs.Func("server", "join the cluster whose API server is at `URL`; of several servers any, or all of them, separated by commas",
				func(urls string) error { cluster.Server += "," + urls; return nil })
			fs.StringVar(&cluster.Kubeconfig, "kubeconfig", "", "join the cluster of the kubeconfig in `FILE`, in place of --server and --token")
			fs.StringVar(&cluster.Token, "token", os.Getenv("PROA_TOKEN"),
				"join with this `TOKEN`; PROA_TOKEN in the environment does the same")
			fs.BoolVar(&cluster.BesideServer, "beside-server", false,
				"be the first node of the server that has the same data folder, which starts this agent itself")
			printRole := fs.Bool("print-role", false, "print the ClusterRole that the agent needs on another API server, and exit")
			values := command.SettingFlags(fs, settings.ForAgents())
			return func(ctx context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("agent", args); err != nil {
					return err
				}
				if *printRole {
					text, err := bootstraproles.NodeRoleManifest()
					if err == nil {
						_, err = env.Out.Write(text)
					}
					return err
				}
				c, err := settings.LoadAgent(cluster, values)
				if err != nil {
					return err
				}
				if os.Geteuid() != 0 {
					return fmt.Errorf("a node needs root: it makes namespaces, mounts and cgroups")
				}
				lock := c.DataDir
				if c.BesideServer {
					lock = nodefolder.First(c.DataDir, c.Node.Name).LockDir()
				} else if err := datafolder.CheckForeign(c.DataDir); err != nil {
					return err
				}
				release, err := datafolder.Lock(lock, 0)
				if err != nil {
					return err
				}
				release = sync.OnceFunc(release) // the lock may be another agent's later
				defer release()
				log := slog.New(goprocess.BoundedLog(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: c.LogLevel})))
				goprocess.RedirectKlog(log)
				go goprocess.FreeMemoryWhenIdle(ctx)
				return machine.RunAgent(ctx, c, log, func() { fmt.Fprintf(env.Out, "joined: %s as %s\n", c.Server, c.Node.Name) },
					release)
			}
		},
	}
}
