package run_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run/pki"
)

const year = 365 * 24 * time.Hour

// TestCARotationIsPublished starts clusters shortly before a step of the rotation of their certificate authority, and checks a day
// later that every place from which users, Pods and nodes read the CA bundle has the new one.
func TestCARotationIsPublished(t *testing.T) {
	for _, tt := range []struct {
		name string
		// before has the earlier uses of the folder, in years before the cluster starts.
		before            []float64
		certs, certsAfter int
		newSigner         bool // another CA signs after the step
	}{
		{"successor", []float64{8}, 1, 2, false},
		{"hand on", []float64{9, 1}, 2, 2, true},
		{"drop", []float64{10, 2, 1}, 2, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				for _, y := range tt.before {
					// The step is due in an hour.
					used := time.Now().Add(time.Hour - time.Duration(y*float64(year)))
					if _, err := pki.Ensure(filepath.Join(dir, "pki"), pki.Options{Now: func() time.Time { return used }}); err != nil {
						t.Fatal(err)
					}
				}
				c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
				defer c.Stop()
				time.Sleep(time.Minute) // until the service account exists
				legacy := &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "token",
						Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
					Type: corev1.SecretTypeServiceAccountToken,
				}
				if _, err := c.Client.Create(t.Context(), gr.Secrets, legacy); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				before := publishedBundle(t, c, tt.certs)
				time.Sleep(25 * time.Hour)
				after := publishedBundle(t, c, tt.certsAfter)
				if got := !bytes.Equal(before[0].Raw, after[0].Raw); got != tt.newSigner {
					t.Errorf("another authority signs: %v", got)
				}
			})
		})
	}
}

// publishedBundle reads the CA bundle from every place where it is published, checks that all have want certificates and are
// the same, and returns its certificates.
func publishedBundle(t *testing.T, c *proatest.Cluster, want int) (out []*x509.Certificate) {
	t.Helper()
	synctest.Wait()
	bundle := string(c.Server.CA().PEM)
	if n := strings.Count(bundle, "BEGIN"); n != want {
		t.Errorf("there are %d authorities, want %d", n, want)
	}
	config, err := c.Client.Get(t.Context(), gr.ConfigMaps, "default", "kube-root-ca.crt", "")
	if err != nil || config.(*corev1.ConfigMap).Data["ca.crt"] != bundle {
		t.Errorf("the ConfigMap has another bundle, %v", err)
	}
	token, err := c.Client.Get(t.Context(), gr.Secrets, "default", "token", "")
	if err != nil || string(token.(*corev1.Secret).Data["ca.crt"]) != bundle {
		t.Errorf("the Secret of a token has another bundle, %v", err)
	}
	view, err := c.Client.View(t.Context(), gr.ClusterTrustBundles)
	if err != nil {
		t.Fatal(err)
	}
	agents, err := os.ReadFile(filepath.Join(c.Dir, "pki", "kubelet-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{"kubernetes.io/kube-apiserver-serving": bundle, certificatesv1.KubeletServingSignerName: string(agents)}
	n := 0
	for o := range view.List("") {
		if b := o.(*certificatesv1.ClusterTrustBundle).Spec; b.TrustBundle != wanted[b.SignerName] {
			t.Errorf("the trust bundle of %s is another one", b.SignerName)
		}
		n++
	}
	if n != 2 {
		t.Errorf("there are %d trust bundles, want one for the API server and one for agents", n)
	}
	file, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster, admin := file.Clusters[file.Contexts[file.CurrentContext].Cluster], file.AuthInfos[file.Contexts[file.CurrentContext].AuthInfo]
	if string(cluster.CertificateAuthorityData) != bundle {
		t.Error("the kubeconfig has another bundle")
	}
	pair, err := tls.X509KeyPair(admin.ClientCertificateData, admin.ClientKeyData)
	if err != nil {
		t.Fatal(err)
	}
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, cert)
	}
	if err := pair.Leaf.CheckSignatureFrom(out[0]); err != nil {
		t.Errorf("the certificate in the kubeconfig: %v", err)
	}
	return out
}

// TestExpiredCA starts a cluster whose CA has expired: it starts with a new CA, and the kubeconfig that it writes works.
func TestExpiredCA(t *testing.T) {
	dir := t.TempDir()
	longAgo := time.Now().Add(-11 * year)
	if _, err := pki.Ensure(filepath.Join(dir, "pki"), pki.Options{Now: func() time.Time { return longAgo }}); err != nil {
		t.Fatal(err)
	}
	c := proatest.Start(t, proatest.Memory(), proatest.InDir(dir))
	pool, admin := x509.NewCertPool(), c.Config.TLSClientConfig
	pool.AppendCertsFromPEM(admin.CAData)
	pair, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.Config.Host, "https://"),
		&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := os.Stat(filepath.Join(dir, "pki", "ca.crt.old")); err != nil {
		t.Error(err)
	}
}
