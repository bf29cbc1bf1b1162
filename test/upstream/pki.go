package upstream

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is a certificate authority of one throw-away system.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// pair is a certificate with its key, both as PEM.
type pair struct{ cert, key []byte }

// issue makes a leaf that can be used by a server (for the given names and
// addresses) and by a client (as the subject).
func (a *authority) issue(subject pkix.Name, dns []string, ips []net.IP) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     dns,
		IPAddresses:  ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := privatePEM(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func privatePEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func publicPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// The kubeconfigs of the parts that are clients, by their names in the folder.
const (
	managerKubeconfig   = "controller-manager.kubeconfig"
	schedulerKubeconfig = "scheduler.kubeconfig"
	nodeKubeconfig      = "kubelet.kubeconfig"
)

// Node is the name of the one node whose agent may join a system.
const Node = "node-a"

// writePKI lays out everything kube-apiserver wants to be given, and the
// kubeconfigs of the administrator and the other parts, in dir.
func writePKI(dir, server string) error {
	ca, err := newAuthority("kubernetes-ca")
	if err != nil {
		return err
	}
	front, err := newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	serving, err := ca.issue(pkix.Name{CommonName: "kube-apiserver"},
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	proxy, err := front.issue(pkix.Name{CommonName: "front-proxy-client"}, nil, nil)
	if err != nil {
		return err
	}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := privatePEM(tokens)
	if err != nil {
		return err
	}
	public, err := publicPEM(tokens)
	if err != nil {
		return err
	}
	caKey, err := privatePEM(ca.key)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt": ca.pem, "ca.key": caKey, "front-proxy-ca.crt": front.pem, "serving.crt": serving.cert, "serving.key": serving.key,
		"front-proxy.crt": proxy.cert, "front-proxy.key": proxy.key, "sa.key": private, "sa.pub": public,
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	users := map[string]pkix.Name{
		managerKubeconfig:   {CommonName: "system:kube-controller-manager"},
		schedulerKubeconfig: {CommonName: "system:kube-scheduler"},
		nodeKubeconfig:      {CommonName: "system:node:" + Node, Organization: []string{"system:nodes"}},
		"admin.kubeconfig":  {CommonName: "kubernetes-admin", Organization: []string{"system:masters"}},
	}
	for name, subject := range users {
		user, err := ca.issue(subject, nil, nil)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(filepath.Join(dir, name), server, ca.pem, user); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(file, server string, ca []byte, user pair) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["upstream"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: user.cert, ClientKeyData: user.key}
	config.Contexts["upstream"] = &clientcmdapi.Context{Cluster: "upstream", AuthInfo: "user"}
	config.CurrentContext = "upstream"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
