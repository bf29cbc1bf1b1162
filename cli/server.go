package cli

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	proa "proa.dev/run"
	"proa.dev/run/machine"
)

func serverCommand() Command {
	return Command{
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
		Settings: proa.Settings,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			said := serverFlags(fs)
			config := fs.String("config", "", "config `FILE` (YAML) with the same names as these flags")
			return func(ctx context.Context, env *Env, args []string) error {
				if err := noArguments("server", args); err != nil {
					return err
				}
				c, err := proa.Load(*config, said)
				if err != nil {
					return err
				}
				return serve(ctx, env, c)
			}
		},
	}
}

// serverFlags declares a flag for each setting and collects what is said with them.
func serverFlags(fs *flag.FlagSet) proa.Said { return settingFlags(fs, proa.Settings()) }

func settingFlags(fs *flag.FlagSet, settings []proa.Setting) proa.Said {
	said := proa.Said{}
	defaults := describe(proa.Default())
	for _, s := range settings {
		help := s.Help
		if s.Many {
			help += "; may be given several times"
		}
		if d := defaults[s.Name]; d != "" {
			help += " (default " + d + ")"
		}
		fs.Func(s.Name, help, func(v string) error {
			said[s.Name] = append(said[s.Name], v)
			return nil
		})
	}
	return said
}

// describe gives the values that help shows as defaults.
func describe(c proa.Config) map[string]string {
	cidr := func(p netip.Prefix) string { return p.String() }
	return map[string]string{
		"data-dir": c.DataDir, "listen": c.Listen, "name": c.Name, "service-cidr": join(c.ServiceCIDRs, cidr),
		"service-account-issuer": c.Issuer, "log-level": strings.ToLower(c.LogLevel.String()),
	}
}

func join[T any](in []T, text func(T) string) string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = text(v)
	}
	return strings.Join(out, ",")
}

func serve(ctx context.Context, env *Env, c proa.Config) error {
	release, err := proa.Hold(c.DataDir, c.StopTime())
	if err != nil {
		return err
	}
	defer release()
	if err := proa.RememberCluster(c.DataDir); err != nil {
		fmt.Fprintf(env.Err, "\"proa list\" will not show this cluster: %v\n", err)
	}
	log := slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: c.LogLevel}))
	proa.Quiet(log)
	go proa.LetGo(ctx)
	c.Machine = &machine.Machine{}
	return proa.Serve(ctx, c, log, func(s *proa.Server) {
		fmt.Fprintf(env.Out, "ready: %s\nkubeconfig: %s\n", s.URL(), s.Kubeconfig())
	})
}
