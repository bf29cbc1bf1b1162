package nodeconnection

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"path"
	"time"
)

// ForeignKubelet is an exception for nodes whose kubelets serve with a certificate that no authority of the cluster has
// signed. An administrator grants it; a node cannot.
type ForeignKubelet struct {
	// Node is the name of the nodes, a pattern as in path.Match.
	Node string
	// Fingerprint is the SHA-256 of the certificate, in hexadecimal; empty accepts every one.
	Fingerprint string
}

// foreign returns the first exception for a node.
func (a *Agents) foreign(node string) (ForeignKubelet, bool) {
	for _, f := range a.Foreign {
		if match, err := path.Match(f.Node, node); err == nil && match {
			return f, true
		}
	}
	return ForeignKubelet{}, false
}

// check checks the certificate of a kubelet. The exception does not hold for certificates of the cluster's authorities,
// also expired ones: otherwise a Node could claim the address of another agent or of the API server, which take the
// caller for an administrator.
func (f ForeignKubelet) check(c tls.ConnectionState, cas *x509.CertPool, node string) error {
	leaf := c.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	signedByCluster := func(at time.Time) bool {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: cas, Intermediates: between, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	}
	if signedByCluster(leaf.NotBefore) || signedByCluster(time.Now()) {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: cas, Intermediates: between, DNSName: c.ServerName}); err != nil {
			return err
		}
		return checkAgent(leaf, node)
	}
	sum := sha256.Sum256(leaf.Raw)
	if has := hex.EncodeToString(sum[:]); f.Fingerprint != "" && has != f.Fingerprint {
		return fmt.Errorf("the kubelet of node %s has a certificate with the fingerprint sha256:%s, and --foreign-kubelets names sha256:%s", node, has,
			f.Fingerprint)
	}
	return nil
}
