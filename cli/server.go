package cli

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"proa.dev/run"
)

func serverCommand() Command {
	return Command{
		Name: "server", Short: "run a control plane in the foreground",
		Long: "Runs the API server with its embedded etcd and the controllers until it gets SIGTERM or SIGINT. Everything it keeps\n" +
			"is under the data folder; the admin's kubeconfig is written there before it is ready.",
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			c, finish := serverFlags(fs)
			return func(ctx context.Context, env *Env, args []string) error {
				if len(args) > 0 {
					return fmt.Errorf("server takes no arguments, got %q", args[0])
				}
				level, err := finish()
				if err != nil {
					return err
				}
				log := slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: level}))
				return run.Serve(ctx, *c, log, func(s *run.Server) {
					fmt.Fprintf(env.Out, "ready: %s\nkubeconfig: %s\n", s.URL(), s.Kubeconfig())
				})
			}
		},
	}
}
