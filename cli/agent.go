package cli

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	proa "proa.dev/run"
	"proa.dev/run/machine"
)

func agentCommand() Command {
	return Command{
		Name: "agent", Short: "run a node of a cluster elsewhere, in the foreground",
		Long: `
Joins this machine to a cluster as a node, and runs its Pods until it gets SIGTERM or SIGINT. It needs root. The containers
keep running when it ends, and the next start goes on with them.

On the server's machine, "proa token create" prints the command to type here:

  proa agent --server https://192.0.2.7:6443 --token TOKEN

The token is needed once: then the node has a certificate of its own, in the data folder, and renews it itself. A node that
exists already and has lost its certificate joins again with a token that was made for it: "proa token create --node NAME".`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			server := fs.String("server", "", "join the cluster whose API server is at `URL`")
			token := fs.String("token", os.Getenv("PROA_TOKEN"), "the `TOKEN` that lets it join; PROA_TOKEN in the environment does too")
			said := settingFlags(fs, proa.AgentSettings())
			return func(ctx context.Context, env *Env, args []string) error {
				if err := noArguments("agent", args); err != nil {
					return err
				}
				c, err := proa.LoadAgent(*server, *token, said)
				if err != nil {
					return err
				}
				if os.Geteuid() != 0 {
					return fmt.Errorf("a node needs root: it makes namespaces, mounts and cgroups")
				}
				release, err := proa.Hold(c.DataDir)
				if err != nil {
					return err
				}
				defer release()
				log := slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: c.LogLevel}))
				proa.Quiet(log)
				go proa.LetGo(ctx)
				return machine.RunAgent(ctx, c, log, func() { fmt.Fprintf(env.Out, "joined: %s as %s\n", c.Server, c.Node.Name) })
			}
		},
	}
}
