package localcluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"proa.dev/run/pki"
)

// Certificate is one certificate of the cluster, as users see it.
type Certificate struct {
	Name    string    `json:"name"`
	Subject string    `json:"subject"`
	CA      bool      `json:"ca"`
	Signs   bool      `json:"signs,omitempty"` // false for an authority that is only trusted: it will sign later, or has been replaced
	Expires time.Time `json:"expires"`
	Names   []string  `json:"names,omitempty"`
	File    string    `json:"-"`
}

// Title returns the name of a certificate, and whether it is an authority.
func (c Certificate) Title() string {
	switch {
	case c.Signs:
		return c.Name + " (authority)"
	case c.CA:
		return c.Name + " (authority, trusted only)"
	}
	return c.Name
}

// Certificates reads the certificates of a cluster.
func Certificates(c Cluster) ([]Certificate, error) {
	files, err := filepath.Glob(c.Path("pki/*.crt"))
	if err != nil {
		return nil, err
	}
	var out []Certificate
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
	slices.SortStableFunc(out, func(a, b Certificate) int {
		switch {
		case a.CA == b.CA:
			return strings.Compare(a.Name, b.Name)
		case a.CA:
			return -1
		}
		return 1
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("there are no certificates in %s; the first \"proa up%s\" makes them", c.Path("pki"), c.CommandFlags())
	}
	return out, nil
}

// AgentCertificate reads the client certificate of the agent whose data folder this is; ok is false where the folder is not
// that of an agent, or the agent has not joined yet.
func AgentCertificate(c Cluster) (cert Certificate, ok bool, err error) {
	for _, name := range []string{"pki", SettingsFile} {
		if _, err := os.Lstat(c.Path(name)); err == nil {
			return Certificate{}, false, nil
		}
	}
	file := c.Path("node/pki/client.pem")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Certificate{}, false, nil
	}
	if err != nil {
		return Certificate{}, true, err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return Certificate{}, true, fmt.Errorf("read %s: %w", file, err)
	}
	return Certificate{Name: "client", Subject: pair.Leaf.Subject.CommonName, Expires: pair.Leaf.NotAfter, File: file}, true, nil
}

// readCertificates reads a file. That of an authority has all certificates that are trusted, the one that signs first;
// others have their own certificate, and perhaps intermediate ones, which are left out.
func readCertificates(file string, data []byte) ([]Certificate, error) {
	certs, err := pki.DecodeCerts(data)
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	if !certs[0].IsCA {
		certs = certs[:1]
	}
	out := make([]Certificate, len(certs))
	for i, cert := range certs {
		names := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			names = append(names, ip.String())
		}
		out[i] = Certificate{
			Name: strings.TrimSuffix(filepath.Base(file), ".crt"), Subject: cert.Subject.CommonName,
			CA: cert.IsCA, Signs: cert.IsCA && i == 0, Expires: cert.NotAfter, Names: names, File: file,
		}
	}
	return out, nil
}

// TimeLeft returns the time until a certificate expires, in days.
func TimeLeft(t time.Time) string {
	d := time.Until(t)
	if d <= 0 {
		return "expired"
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
