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

"proa certs rotate-secrets" makes a new key for the Secrets in the store. A running server uses it within a minute and
writes all Secrets again with it; the former keys stay in pki/secrets.key, so that what they have encrypted can be read.
Where servers share an etcd, the new key is only read with at first: copy the file to all of them, and then have each use
the key with "proa certs rotate-secrets --use NAME".

"proa certs new-secrets-key" makes pki/secrets.key where the file is lost. What the lost keys have encrypted stays in
the store; the server names it, and it can be deleted.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			which := localcluster.DataDirFlag(fs)
			use := fs.String("use", "", "with rotate-secrets: encrypt with the key `NAME`, which all servers have")
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
					return rotateSecrets(env, c, *use)
				case len(args) == 1 && args[0] == "new-secrets-key":
					return newSecretsKey(env, c)
				}
				return fmt.Errorf("certs takes the argument renew, rotate-secrets or new-secrets-key, but got %q", args[0])
			}
		},
	}
}

// rotateSecrets makes a new key for the Secrets of a cluster, or has its server use the key of a name.
func rotateSecrets(env *command.Env, c localcluster.Cluster, use string) error {
	if _, err := os.Stat(c.Path("pki")); err != nil {
		return fmt.Errorf("there are no Secrets in %s: the cluster has not been started yet", c.Dir)
	}
	shared := !command.FileExists(c.Path("etcd"))
	if use != "" {
		if err := storeencryption.UseKey(c.Dir, use); err != nil {
			return err
		}
		return encryptedWith(env, use)
	}
	if shared {
		name, err := storeencryption.AddKey(c.Dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Out, "Made the key %[1]s, which is not used yet: the servers that share the etcd need it first.\n"+
			"1. Copy %[2]s to all of them. When each has taken it over (its log says: a changed file is in effect),\n"+
			"2. run \"proa certs rotate-secrets --use %[1]s\" on each.\n", name, c.Path("pki/secrets.key"))
		return nil
	}
	name, err := storeencryption.RotateKey(c.Dir)
	if err != nil {
		return err
	}
	return encryptedWith(env, name)
}

func encryptedWith(env *command.Env, key string) error {
	_, err := fmt.Fprintf(env.Out, "Secrets are encrypted with %[1]s from now on. \"kubectl get storageversionmigrations secrets-%[1]s\" shows when all are.\n", key)
	return err
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
