package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// The files, without their .crt and .key endings.
const (
	fileCA               = "ca"
	fileFrontProxyCA     = "front-proxy-ca"
	fileKubeletCA        = "kubelet-ca"
	leafServing          = "apiserver"
	leafAdmin            = "admin"
	leafFrontProxyClient = "front-proxy-client"
	leafKubeletClient    = "apiserver-kubelet-client"
	fileSAKey            = "sa.key"
	fileSAPublic         = "sa.pub"
)

// leaf declares one certificate that is kept in the folder.
type leaf struct {
	name  string
	ca    *Authority
	want  *x509.Certificate
	hosts *hostSet // nil for a client certificate
}

// leaves is the table of the certificates in the folder beside the authorities.
func leaves(o Options, m *material) []leaf {
	hosts := servingHosts(o)
	return []leaf{
		{name: leafServing, ca: m.ca, want: serverTemplate("kube-apiserver", nil, hosts), hosts: &hosts},
		{name: leafAdmin, ca: m.ca, want: clientTemplate(AdminName, []string{AdminGroup})},
		{name: leafKubeletClient, ca: m.ca, want: clientTemplate(KubeletClientName, []string{AdminGroup})},
		{name: leafFrontProxyClient, ca: m.frontProxyCA, want: clientTemplate(FrontProxyClientName, nil)},
	}
}

// stale returns why a certificate has to be renewed; empty if it has not.
func (l leaf) stale(cert *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(cert.NotBefore):
		return "it is not valid yet"
	// A leaf that already lasts as long as its authority gains nothing from renewal.
	case now.Add(RenewBefore).After(cert.NotAfter) && cert.NotAfter.Before(l.ca.Cert.NotAfter):
		return "it expires soon"
	case cert.CheckSignatureFrom(l.ca.Cert) != nil:
		return "another authority signed it"
	case cert.Subject.CommonName != l.want.Subject.CommonName,
		!slices.Equal(cert.Subject.Organization, l.want.Subject.Organization):
		return "its subject changed"
	case !slices.Equal(cert.ExtKeyUsage, l.want.ExtKeyUsage):
		return "its usage changed"
	case l.hosts != nil && !l.hosts.match(cert.DNSNames, cert.IPAddresses):
		return "its names changed"
	}
	return ""
}

// load brings the folder up to date and reads it.
func load(dir string, o Options) (*material, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer f.close()
	m, err := f.update(o)
	if err != nil {
		return nil, err
	}
	return m, f.flush()
}

// update stages what is missing or has to be renewed, and returns the resulting keys and certificates.
func (f *folder) update(o Options) (m *material, err error) {
	now := o.Now()
	m = &material{leaves: map[string]*Pair{}}
	if m.ca, err = f.authority(rotator{authorityState: authorityState{name: "proa-ca"}, file: fileCA}, o, m); err != nil {
		return nil, err
	}
	if m.frontProxyCA, err = f.authority(rotator{authorityState: authorityState{name: "proa-front-proxy-ca"}, file: fileFrontProxyCA}, o,
		m); err != nil {
		return nil, err
	}
	if m.kubeletCA, err = f.authority(rotator{authorityState: authorityState{name: "proa-kubelet-ca"}, file: fileKubeletCA,
		parent: m.ca.Key}, o, m); err != nil {
		return nil, err
	}
	if err = f.serviceAccount(m); err != nil {
		return nil, err
	}
	for _, l := range leaves(o, m) {
		pair, renewed, err := f.leaf(l, now)
		if err != nil {
			return nil, err
		}
		m.leaves[l.name] = pair
		if renewed {
			m.renewed = append(m.renewed, l.name)
		}
	}
	serving := m.leaves[leafServing].TLS()
	serving.Certificate = append(serving.Certificate, m.ca.Cert.Raw) // joining agents compare it with their token
	m.serving = &serving
	return m, nil
}

// leaf loads, makes or renews one certificate. A certificate that does not belong to its key, because the key file was
// removed, is made again like an expired one.
func (f *folder) leaf(l leaf, now time.Time) (*Pair, bool, error) {
	crt, keyFile := l.name+".crt", l.name+".key"
	key, keyPEM, err := f.key(keyFile, true)
	if err != nil {
		return nil, false, err
	}
	certPEM, err := f.read(crt)
	if err == nil {
		certs, err := DecodeCerts(certPEM)
		if err != nil {
			return nil, false, f.problem(crt, err, "remove it to have it made again")
		}
		if samePublicKey(certs[0], key) && l.stale(certs[0], now) == "" {
			return &Pair{Cert: certs[0], Key: key, CertPEM: certPEM, KeyPEM: keyPEM}, false, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	cert, err := l.ca.Sign(l.want, key.Public(), now)
	if err != nil {
		return nil, false, err
	}
	certPEM = encodeCert(cert)
	if err := f.write(crt, certPEM, modePublic); err != nil {
		return nil, false, err
	}
	return &Pair{Cert: cert, Key: key, CertPEM: certPEM, KeyPEM: keyPEM}, true, nil
}

// key loads a private key, or makes it if it is missing and create is set.
func (f *folder) key(name string, create bool) (crypto.Signer, []byte, error) {
	data, err := f.readKey(name)
	if errors.Is(err, fs.ErrNotExist) && create {
		key, data, err := newKeyPEM()
		if err != nil {
			return nil, nil, err
		}
		return key, data, f.write(name, data, modeSecret)
	}
	if err != nil {
		return nil, nil, err
	}
	key, err := decodeKey(data)
	if err != nil {
		return nil, nil, f.problem(name, err, "restore it from a backup, or remove it to have a new key made")
	}
	return key, data, nil
}

// newKeyPEM makes a private key.
func newKeyPEM() (crypto.Signer, []byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	data, err := encodeKey(key)
	return key, data, err
}

// serviceAccount loads or makes the token key and the list of keys that verify tokens.
func (f *folder) serviceAccount(m *material) error {
	key, _, err := f.key(fileSAKey, true)
	if err != nil {
		return err
	}
	own, err := encodePublicKey(key.Public())
	if err != nil {
		return err
	}
	m.saKey, m.saPublic = key, []crypto.PublicKey{key.Public()}
	data, err := f.read(fileSAPublic)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	blocks, err := decodePublicKeys(data)
	if err != nil {
		return f.problem(fileSAPublic, err, "restore it from a backup, or remove it to have it made again from "+fileSAKey)
	}
	found := false
	for _, b := range blocks {
		if bytes.Equal(b.pem, own) {
			found = true
			continue
		}
		m.saPublic = append(m.saPublic, b.key)
	}
	if found {
		return nil
	}
	return f.write(fileSAPublic, append(own, data...), modePublic)
}
