package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	proa "proa.dev/run"
	"proa.dev/run/pki"
)

func certsCommand() Command {
	return Command{
		Name: "certs", Args: "[renew|rotate-secrets|new-secrets-key]", Short: "list the cluster's certificates, or renew them or the key of the Secrets",
		Long: `
Lists the certificates of the cluster and when they expire. The server renews its own certificates by itself a
month before that; the authorities live ten years, and each has an heir in the last two of them. An authority that is
trusted only is such an heir, or one that had to make room for it.

"proa certs renew" removes all certificates except the authorities, so that the next start makes new ones with the
same keys; the administrator's kubeconfig is written anew with them.

"proa certs rotate-secrets" makes a new key for the Secrets in the embedded store. A running server takes it over
within a minute and writes all Secrets again with it; the former keys stay in pki/secrets.key, so that what they
have encrypted can be read. Servers that share an etcd are given a new key by hand, see the guide.

"proa certs new-secrets-key" makes pki/secrets.key where the file is lost. What the lost keys have encrypted stays in
the store; the server names it, and it can be deleted.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			which := dataDirFlag(fs)
			return func(_ context.Context, env *Env, args []string) error {
				c, err := which()
				if err != nil {
					return err
				}
				switch {
				case len(args) == 0:
					return listCerts(env, c)
				case len(args) == 1 && args[0] == "renew":
					return renewCerts(env, c)
				case len(args) == 1 && args[0] == "rotate-secrets":
					return rotateSecrets(env, c)
				case len(args) == 1 && args[0] == "new-secrets-key":
					return newSecretsKey(env, c)
				}
				return fmt.Errorf("certs knows the arguments renew, rotate-secrets and new-secrets-key and no other, but got %q", args[0])
			}
		},
	}
}

// rotateSecrets makes a new key for the Secrets of a cluster that is there.
func rotateSecrets(env *Env, c cluster) error {
	if _, err := os.Stat(c.file("pki")); err != nil {
		return fmt.Errorf("there are no Secrets in %s: the cluster has not been started yet", c.dir)
	}
	if _, err := os.Stat(c.file("etcd")); err != nil {
		return fmt.Errorf("the store of this cluster is not in %s: the servers that share it must have the same keys. Make a key with \"head -c32 /dev/urandom | base64\", "+
			"add the line \"NAME KEY\" to the end of pki/secrets.key of every server, and when all have taken it over (the log says so) move it to the front in each", c.dir)
	}
	name, err := proa.RotateSealKey(c.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "Secrets are encrypted with %s from now on. \"kubectl get storageversionmigrations secrets-%s\" shows when all are.\n", name, name)
	return nil
}

// newSecretsKey makes a key for the Secrets of a cluster that has lost its keys.
func newSecretsKey(env *Env, c cluster) error {
	if _, err := os.Stat(c.file("pki")); err != nil {
		return fmt.Errorf("there is no cluster in %s", c.dir)
	}
	name, err := proa.NewSealKey(c.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "Made the key %s. Secrets of lost keys stay unreadable; \"proa status\" tells how many there are.\n", name)
	return nil
}

// certificate is one certificate of the cluster, for people.
type certificate struct {
	Name    string    `json:"name"`
	Subject string    `json:"subject"`
	CA      bool      `json:"ca"`
	Signs   bool      `json:"signs,omitempty"` // an authority that does not is only trusted: it has been, or will be, the one that does
	Expires time.Time `json:"expires"`
	Names   []string  `json:"names,omitempty"`
	file    string
}

// certificates reads the certificates of the folder; it changes nothing.
func (c cluster) certificates() ([]certificate, error) {
	files, err := filepath.Glob(c.file("pki/*.crt"))
	if err != nil {
		return nil, err
	}
	var out []certificate
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		found, err := readCertificates(f, data)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	slices.SortStableFunc(out, func(a, b certificate) int {
		switch {
		case a.CA == b.CA:
			return strings.Compare(a.Name, b.Name)
		case a.CA:
			return -1
		}
		return 1
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("there are no certificates in %s; the first \"proa up%s\" makes them", c.file("pki"), c.flags())
	}
	return out, nil
}

// readCertificates reads a file: an authority's has all that are trusted, the one that signs first; another has its own certificate,
// and perhaps those between it and the authority, which are no concern here.
func readCertificates(file string, data []byte) ([]certificate, error) {
	certs, err := pki.DecodeCerts(data)
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	if !certs[0].IsCA {
		certs = certs[:1]
	}
	out := make([]certificate, len(certs))
	for i, cert := range certs {
		names := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			names = append(names, ip.String())
		}
		out[i] = certificate{
			Name: strings.TrimSuffix(filepath.Base(file), ".crt"), Subject: cert.Subject.CommonName,
			CA: cert.IsCA, Signs: cert.IsCA && i == 0, Expires: cert.NotAfter, Names: names, file: file,
		}
	}
	return out, nil
}

// title is the name of a certificate, with what it is.
func (c certificate) title() string {
	switch {
	case c.Signs:
		return c.Name + " (authority)"
	case c.CA:
		return c.Name + " (authority, trusted only)"
	}
	return c.Name
}

func listCerts(env *Env, c cluster) error {
	certs, err := c.certificates()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUBJECT\tEXPIRES\tLEFT")
	for _, cert := range certs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cert.title(), cert.Subject, cert.Expires.Local().Format(time.DateOnly), left(cert.Expires))
	}
	return w.Flush()
}

func left(t time.Time) string {
	d := time.Until(t)
	if d <= 0 {
		return "expired"
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func renewCerts(env *Env, c cluster) error {
	certs, err := c.certificates()
	if err != nil {
		return err
	}
	var failed []error
	for _, cert := range certs {
		if !cert.CA {
			failed = append(failed, os.Remove(cert.file))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	pid, err := c.pid()
	if err != nil {
		return err
	}
	if pid != 0 {
		fmt.Fprintf(env.Out, "The certificates are removed. Make new ones with: proa down%s && proa up%s\n", c.flags(), c.flags())
	} else {
		fmt.Fprintf(env.Out, "The certificates are removed. \"proa up%s\" makes new ones.\n", c.flags())
	}
	return nil
}
