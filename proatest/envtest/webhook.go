package envtest

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"proa.dev/proatest/manifest"
)

const (
	mutatingConfigurations   = "mutatingwebhookconfigurations"
	validatingConfigurations = "validatingwebhookconfigurations"

	// loopback is where webhooks are served unless the suite says otherwise.
	loopback = "127.0.0.1"
)

// WebhookInstallOptions says which webhook configurations to install, and where the test serves the webhooks.
type WebhookInstallOptions struct {
	// Paths are files and folders with webhook configurations.
	Paths []string
	// MutatingWebhooks and ValidatingWebhooks are configurations besides those in files.
	MutatingWebhooks   []*admissionv1.MutatingWebhookConfiguration
	ValidatingWebhooks []*admissionv1.ValidatingWebhookConfiguration
	// IgnoreSchemeConvertible makes every definition use the local webhook server for conversion, whatever the scheme has.
	IgnoreSchemeConvertible bool
	// IgnoreErrorIfPathMissing skips paths that do not exist.
	IgnoreErrorIfPathMissing bool
	// LocalServingHost, LocalServingPort and LocalServingCertDir are the address of the webhook server of the test, and the folder
	// with its tls.crt and tls.key. The folder is created at the start; an address is chosen unless it is set.
	LocalServingHost    string
	LocalServingPort    int
	LocalServingCertDir string
	// LocalServingCAData is the certificate that the API server trusts.
	LocalServingCAData []byte
	// LocalServingHostExternalName is the name by which the API server reaches the webhook server, if it is another than LocalServingHost.
	LocalServingHostExternalName string
	// MaxTime is how long, and PollInterval how often, to check whether the configurations exist.
	MaxTime, PollInterval time.Duration
}

// PrepWithoutInstalling creates the certificate, chooses the address, and reads the configurations.
func (o *WebhookInstallOptions) PrepWithoutInstalling() error {
	if err := o.makeCertificate(); err != nil {
		return fmt.Errorf("make the certificate of the webhook server: %w", err)
	}
	if err := o.readFiles(); err != nil {
		return fmt.Errorf("read webhook configurations: %w", err)
	}
	return o.ModifyWebhookDefinitions()
}

// Install creates the configurations, or replaces them, and waits until they exist.
func (o *WebhookInstallOptions) Install(config *rest.Config) error {
	if len(o.LocalServingCAData) == 0 {
		if err := o.PrepWithoutInstalling(); err != nil {
			return err
		}
	}
	c, err := clientFor(config, admissionv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	for _, w := range o.MutatingWebhooks {
		if err := ensure(c, mutatingConfigurations, w); err != nil {
			return err
		}
	}
	for _, w := range o.ValidatingWebhooks {
		if err := ensure(c, validatingConfigurations, w); err != nil {
			return err
		}
	}
	return WaitForWebhooks(config, o.MutatingWebhooks, o.ValidatingWebhooks, *o)
}

// Cleanup removes the folder of the certificate.
func (o *WebhookInstallOptions) Cleanup() error {
	if o.LocalServingCertDir == "" {
		return nil
	}
	return os.RemoveAll(o.LocalServingCertDir)
}

// ModifyWebhookDefinitions replaces the Services in the configurations by the URL of the local webhook server, and sets the CA
// bundle of all webhooks to LocalServingCAData.
func (o *WebhookInstallOptions) ModifyWebhookDefinitions() error {
	hostPort, err := o.hostPort()
	if err != nil {
		return err
	}
	local := func(c *admissionv1.WebhookClientConfig) {
		c.CABundle = o.LocalServingCAData
		if c.Service != nil && c.Service.Path != nil {
			c.URL = new(fmt.Sprintf("https://%s/%s", hostPort, strings.TrimPrefix(*c.Service.Path, "/")))
			c.Service = nil
		}
	}
	for _, configuration := range o.MutatingWebhooks {
		for i := range configuration.Webhooks {
			local(&configuration.Webhooks[i].ClientConfig)
		}
	}
	for _, configuration := range o.ValidatingWebhooks {
		for i := range configuration.Webhooks {
			local(&configuration.Webhooks[i].ClientConfig)
		}
	}
	return nil
}

// WaitForWebhooks waits until the configurations exist.
func WaitForWebhooks(config *rest.Config, mutating []*admissionv1.MutatingWebhookConfiguration,
	validating []*admissionv1.ValidatingWebhookConfiguration,
	options WebhookInstallOptions,
) error {
	c, err := clientFor(config, admissionv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	wait := func(resource, name string) error {
		return poll(cmp.Or(options.PollInterval, defaultInterval), cmp.Or(options.MaxTime, defaultMaxTime), resource+" "+name,
			func(ctx context.Context) (bool, error) {
				err := c.Get().Resource(resource).Name(name).Do(ctx).Error()
				if apierrors.IsNotFound(err) {
					return false, nil
				}
				return err == nil, err
			})
	}
	for _, w := range mutating {
		err = errors.Join(err, wait(mutatingConfigurations, w.Name))
	}
	for _, w := range validating {
		err = errors.Join(err, wait(validatingConfigurations, w.Name))
	}
	return err
}

// readFiles adds the configurations in Paths.
func (o *WebhookInstallOptions) readFiles() error {
	for _, path := range o.Paths {
		documents, err := manifest.Documents(path)
		if o.IgnoreErrorIfPathMissing && os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, d := range documents {
			if d.Kind != "MutatingWebhookConfiguration" && d.Kind != "ValidatingWebhookConfiguration" {
				continue
			}
			if d.APIVersion != admissionv1.SchemeGroupVersion.String() {
				return fmt.Errorf("%s: %s has the apiVersion %s; only %s is supported", d.File, d.Kind, d.APIVersion,
					admissionv1.SchemeGroupVersion)
			}
			if d.Kind == "MutatingWebhookConfiguration" {
				w := &admissionv1.MutatingWebhookConfiguration{}
				err = d.Decode(w)
				o.MutatingWebhooks = append(o.MutatingWebhooks, w)
			} else {
				w := &admissionv1.ValidatingWebhookConfiguration{}
				err = d.Decode(w)
				o.ValidatingWebhooks = append(o.ValidatingWebhooks, w)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// hostPort returns the address of the webhook server. It chooses a free port if none is set.
func (o *WebhookInstallOptions) hostPort() (string, error) {
	if o.LocalServingPort == 0 {
		l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(o.LocalServingHost, loopback), "0"))
		if err != nil {
			return "", fmt.Errorf("find a free port for the webhook server: %w", err)
		}
		at := l.Addr().(*net.TCPAddr)
		if err := l.Close(); err != nil {
			return "", err
		}
		o.LocalServingHost, o.LocalServingPort = at.IP.String(), at.Port
	}
	return net.JoinHostPort(cmp.Or(o.LocalServingHostExternalName, o.LocalServingHost, loopback), strconv.Itoa(o.LocalServingPort)), nil
}

// makeCertificate writes the key of the webhook server and a self-signed certificate into a new folder.
func (o *WebhookInstallOptions) makeCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "localhost", Organization: []string{"envtest"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(7 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, host := range []string{o.LocalServingHost, o.LocalServingHostExternalName} {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if host != "" {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	o.LocalServingCAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	keyData, err := encodeKey(key)
	if err != nil {
		return err
	}
	if o.LocalServingCertDir, err = os.MkdirTemp("", "envtest-serving-certs-"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.LocalServingCertDir, "tls.key"), keyData, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.LocalServingCertDir, "tls.crt"), o.LocalServingCAData, 0o600)
}

// encodeKey writes a key as PEM.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), err
}
