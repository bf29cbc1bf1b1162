package cli

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func certsCommand() Command {
	return Command{
		Name: "certs", Args: "[renew]", Short: "list the cluster's certificates, or renew them",
		Long: `
Lists the certificates of the cluster and when they expire. The server renews its own certificates by itself a
month before that; the authorities live ten years.

"proa certs renew" removes all certificates except the authorities, so that the next start makes new ones with the
same keys; the administrator's kubeconfig is written anew with them.`,
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
				}
				return fmt.Errorf("certs knows the argument renew and no other, but got %q", args[0])
			}
		},
	}
}

// certificate is one certificate of the cluster, for people.
type certificate struct {
	Name    string    `json:"name"`
	Subject string    `json:"subject"`
	CA      bool      `json:"ca"`
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
		block, _ := pem.Decode(data)
		if block == nil {
			return nil, fmt.Errorf("%s holds no certificate", f)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		names := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			names = append(names, ip.String())
		}
		out = append(out, certificate{
			Name: strings.TrimSuffix(filepath.Base(f), ".crt"), Subject: cert.Subject.CommonName,
			CA: cert.IsCA, Expires: cert.NotAfter, Names: names, file: f,
		})
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

func listCerts(env *Env, c cluster) error {
	certs, err := c.certificates()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUBJECT\tEXPIRES\tLEFT")
	for _, cert := range certs {
		name := cert.Name
		if cert.CA {
			name += " (authority)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, cert.Subject, cert.Expires.Local().Format(time.DateOnly), left(cert.Expires))
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
