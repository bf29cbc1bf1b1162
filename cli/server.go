package cli

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"proa.dev/cli/command"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/run/goprocess"
	"proa.dev/run/machine"
	"proa.dev/run/settings"
)

func serverCommand() command.Command {
	return command.Command{
		Name: "server", Short: "run a control plane in the foreground",
		Long: `
Runs the API server, its embedded etcd and the controllers in this process until it gets SIGTERM or SIGINT.
Everything it keeps is under the data folder: keys and certificates in pki/, the store in etcd/. The kubeconfig
of the administrator, admin.kubeconfig, is there before the server is ready.

Each flag can stand in a config file too, under its name without dashes; flags win:

  listen: 0.0.0.0:6443
  tls-san: [api.example.com, 192.0.2.7]
  feature-gates: {SomeFeature: true}

"proa config" prints such a file with every setting. "proa up" runs the same server in the background.`,
		Settings: settings.All,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			values := command.ServerFlags(fs)
			config := fs.String("config", "", "config `FILE` (YAML) with the same names as these flags")
			return func(ctx context.Context, env *command.Env, args []string) error {
				if err := command.NoArguments("server", args); err != nil {
					return err
				}
				c, err := proa.Load(*config, values)
				if err != nil {
					return err
				}
				return serve(ctx, env, c)
			}
		},
	}
}

func serve(ctx context.Context, env *command.Env, c proa.Config) error {
	if err := datafolder.CheckForeign(c.DataDir); err != nil {
		return err
	}
	release, err := datafolder.Lock(c.DataDir, c.StopTime())
	if err != nil {
		return err
	}
	defer release()
	if err := datafolder.Remember(c.DataDir); err != nil {
		fmt.Fprintf(env.Err, "\"proa list\" will not show this cluster: %v\n", err)
	}
	log := slog.New(goprocess.BoundedLog(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: c.LogLevel})))
	goprocess.RedirectKlog(log)
	go goprocess.FreeMemoryWhenIdle(ctx)
	c.Machine = &machine.Machine{}
	return proa.Serve(ctx, c, log, func(s *proa.Server) {
		fmt.Fprintf(env.Out, "ready: %s\nkubeconfig: %s\n", s.URL(), s.Kubeconfig())
	})
}
