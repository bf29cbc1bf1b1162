package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/run/datafolder"
	"proa.dev/run/storeencryption"
)

func certsCommand() command.Command {
	return command.Command{
		Name: "certs", Args: "[renew|rotate-secrets|new-secrets-key]", Short: "list the cluster's certificates, or renew them or the key of the Secrets",
		Long: `
Lists the certificates of the cluster and when they expire. The server renews its own certificates by itself a
month before that. The certificate authorities are valid for ten years and are rotated in the last two of them: a new authority
is trusted first, and signs later. An authority that is trusted only is such a new one, or one that has been replaced.

"proa certs renew" removes all certificates except the authorities, so that the next start makes new ones with the
same keys; the administrator's kubeconfig is written again with them.

"proa certs rotate-secrets" makes a new key for the Secrets in the embedded store. A running server uses it
within a minute and writes all Secrets again with it; the former keys stay in pki/secrets.key, so that what they
have encrypted can be read. Servers that share an etcd are given a new key by hand, see the guide.

"proa certs new-secrets-key" makes pki/secrets.key where the file is lost. What the lost keys have encrypted stays in
the store; the server names it, and it can be deleted.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.DataDirFlag(fs)
			return func(_ context.Context, env *command.Env, args []string) error {
				c, err := which()
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return listCerts(env, c)
				}
				if err := datafolder.CheckVersion(c.Dir); err != nil {
					return err
				}
				switch {
				case len(args) == 1 && args[0] == "renew":
					return renewCerts(env, c)
				case len(args) == 1 && args[0] == "rotate-secrets":
					return rotateSecrets(env, c)
				case len(args) == 1 && args[0] == "new-secrets-key":
					return newSecretsKey(env, c)
				}
				return fmt.Errorf("certs takes the argument renew, rotate-secrets or new-secrets-key, but got %q", args[0])
			}
		},
	}
}

// rotateSecrets makes a new key for the Secrets of a cluster.
func rotateSecrets(env *command.Env, c localcluster.Cluster) error {
	if _, err := os.Stat(c.Path("pki")); err != nil {
		return fmt.Errorf("there are no Secrets in %s: the cluster has not been started yet", c.Dir)
	}
	if _, err := os.Stat(c.Path("etcd")); err != nil {
		return fmt.Errorf("the store of this cluster is not in %s: the servers that share it must have the same keys. Make a key with \"head -c32 /dev/urandom | base64\", "+
			"add the line \"NAME KEY\" to the end of pki/secrets.key of every server, and when all servers use the changed file (the log says so) move the line to the front in each", c.Dir)
	}
	name, err := storeencryption.RotateKey(c.Dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "Secrets are encrypted with %s from now on. \"kubectl get storageversionmigrations secrets-%s\" shows when all are.\n", name, name)
	return nil
}

// newSecretsKey makes a key for the Secrets of a cluster that has lost its keys.
func newSecretsKey(env *command.Env, c localcluster.Cluster) error {
	if _, err := os.Stat(c.Path("pki")); err != nil {
		return fmt.Errorf("there is no cluster in %s", c.Dir)
	}
	name, err := storeencryption.NewKeyFile(c.Dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "Made the key %s. Secrets of lost keys stay unreadable; \"proa status\" shows how many there are.\n", name)
	return nil
}

func listCerts(env *command.Env, c localcluster.Cluster) error {
	certs, err := localcluster.Certificates(c)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUBJECT\tEXPIRES\tLEFT")
	for _, cert := range certs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cert.Title(), cert.Subject, cert.Expires.Local().Format(time.DateOnly),
			localcluster.TimeLeft(cert.Expires))
	}
	return w.Flush()
}

func renewCerts(env *command.Env, c localcluster.Cluster) error {
	certs, err := localcluster.Certificates(c)
	if err != nil {
		return err
	}
	var failed []error
	for _, cert := range certs {
		if !cert.CA {
			failed = append(failed, os.Remove(cert.File))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	pid, err := c.ServerPID()
	if err != nil {
		return err
	}
	if pid != 0 {
		fmt.Fprintf(env.Out, "The certificates are removed. Make new ones with: proa down%s && proa up%s\n", c.CommandFlags(), c.CommandFlags())
	} else {
		fmt.Fprintf(env.Out, "The certificates are removed. \"proa up%s\" makes new ones.\n", c.CommandFlags())
	}
	return nil
}
