package nodestatus

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// recordingCA signs requests for a day, and records their addresses. It can be made to fail.
type recordingCA struct {
	key      *ecdsa.PrivateKey
	failures int
	requests []string
}

func (a *recordingCA) issue(_ context.Context, request []byte, _ crypto.Signer) ([]byte, error) {
	if a.failures > 0 {
		a.failures--
		return nil, errors.New("no connection to the server")
	}
	block, _ := pem.Decode(request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	a.requests = append(a.requests, fmt.Sprint(r.IPAddresses))
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.requests))), Subject: r.Subject, IPAddresses: r.IPAddresses, DNSNames: r.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, r.PublicKey, a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// TestServingCertificateFollowsAddresses checks that a node that gets another address serves with a certificate for it as
// soon as there is one, and with the
// old one until then. Without a change no certificate is requested, nor for an address that has disappeared.
func TestServingCertificateFollowsAddresses(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "serving.pem")
	synctest.Test(t, func(t *testing.T) {
		ca, n := &recordingCA{key: key}, &Node{}
		c := loadCertificate(t, file, func() *x509.CertificateRequest {
			if o := n.Current(); o != nil {
				return ServingRequest("a", o.Status.Addresses)
			}
			return nil
		}, ca.issue)
		n.AddressesChanged = c.Recheck
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		for _, step := range []struct {
			about     string
			addresses []string
			refuse    int
			after     time.Duration
			serves    string
			issued    int
		}{
			{"no certificate yet", nil, 0, time.Hour, "", 0},
			{"the first address", []string{"10.0.0.1"}, 0, 0, "10.0.0.1", 1},
			{"the same", []string{"10.0.0.1"}, 0, time.Hour, "10.0.0.1", 1},
			{"another one, without a connection to the server", []string{"10.0.0.2"}, 1, 0, "10.0.0.1", 1},
			{"the server is back", []string{"10.0.0.2"}, 0, 3 * time.Second, "10.0.0.2", 2},
			{"a second one", []string{"10.0.0.2", "fd00::2"}, 0, 0, "10.0.0.2 fd00::2", 3},
			{"one address less", []string{"10.0.0.2"}, 0, 0, "10.0.0.2 fd00::2", 3},
			{"the certificate gets old", []string{"10.0.0.2"}, 0, 23 * time.Hour, "10.0.0.2", 4},
		} {
			ca.failures = step.refuse
			if step.addresses != nil {
				o := &corev1.Node{}
				for _, a := range step.addresses {
					o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
				}
				n.setCurrent(o)
			}
			time.Sleep(step.after)
			synctest.Wait()
			got := ""
			if pair, err := c.Serve(nil); err == nil {
				for _, ip := range pair.Leaf.IPAddresses {
					got += " " + ip.String()
				}
				got = got[1:]
			}
			if got != step.serves || len(ca.requests) != step.issued {
				t.Errorf("%s: serves %q after %q, want %q and %d certificates", step.about, got, ca.requests, step.serves, step.issued)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
