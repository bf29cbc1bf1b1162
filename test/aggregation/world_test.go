package aggregation

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"proa.dev/proatest"
	"proa.dev/test/ports"
	"proa.dev/test/upstream"
)

// cluster is a control plane, and kubectl for it.
type cluster struct {
	*proatest.Cluster
	t       *testing.T
	kubectl string
}

// programs finds or builds upstream programs. Without the modules that they are built from the test is skipped, or fails if CI is
// set.
func programs(t *testing.T, names ...string) map[string]string {
	t.Helper()
	bins, err := upstream.Build(t.Context(), names...)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v cannot be built here (they are made from modules of the Go proxy): %v", names, err)
	}
	return bins
}

func start(t *testing.T, bins map[string]string) *cluster {
	t.Helper()
	return &cluster{proatest.Start(t), t, bins["kubectl"]}
}

// try runs kubectl and returns its output.
func (c *cluster) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.kubectl, append([]string{"--kubeconfig", c.Kubeconfig, "--cache-dir", c.t.TempDir()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs kubectl, which must succeed.
func (c *cluster) run(stdin string, args ...string) string {
	c.t.Helper()
	out, err := c.try(stdin, args...)
	if err != nil {
		c.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// until runs kubectl until its output contains a text.
func (c *cluster) until(want string, args ...string) {
	c.t.Helper()
	var out string
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if out, _ = c.try("", args...); strings.Contains(out, want) {
			return
		}
	}
	c.t.Fatalf("kubectl %v does not say %q but:\n%s", args, want, out)
}

// hostAddress returns an address of this machine that an endpoint may have: the source address of its default route. Addresses of
// clusters on this machine come and go.
func hostAddress(t *testing.T) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", "198.51.100.1:9") // UDP: no packet is sent
	if err == nil {
		defer func() { _ = conn.Close() }()
		if ip := conn.LocalAddr().(*net.UDPAddr).IP; ip.To4() != nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Skip("this machine has no way to others, and so no address but its loopback, which endpoints may not have")
	return ""
}

// freePort returns a port that is not in use.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := ports.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	return port[0]
}

// selfSignedCert returns a self-signed certificate for the name of a Service.
func selfSignedCert(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// writeFile writes a file into a folder.
func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// process is a program that runs until the test ends.
type process struct {
	*exec.Cmd
	output output
	ended  chan error
}

// output is what a program has printed; it can be read while the program runs. mu guards text.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds what the program prints.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func launch(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(program, args...), ended: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.output, &p.output
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			out := p.output.String()
			t.Logf("%s printed:\n%s", filepath.Base(program), out[max(0, len(out)-6000):])
		}
	})
	return p
}

// kill kills the program and waits until it has ended. It may be called twice.
func (p *process) kill() {
	_ = p.Process.Kill()
	p.ended <- <-p.ended
}

// apiService returns the manifest of a Service without a selector, its endpoint, and an APIService that refers to it.
func apiService(version, group, namespace, address string, port int, ca []byte) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[3]s}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: %[3]s}
spec:
  ports: [{name: https, port: 443, targetPort: %[5]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, namespace: %[3]s, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
endpoints: [{addresses: [%[4]q], conditions: {ready: true}}]
ports: [{name: https, port: %[5]d, protocol: TCP}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  version: %[1]s
  groupPriorityMinimum: 1000
  versionPriority: 15
  caBundle: %[6]s
  service: {name: api, namespace: %[3]s, port: 443}
`, version, group, namespace, address, port, base64.StdEncoding.EncodeToString(ca))
}

func itoa(n int) string { return strconv.Itoa(n) }
