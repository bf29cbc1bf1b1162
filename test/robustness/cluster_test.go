package robustness

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/test/lab"
	"proa.dev/test/program"
	"proa.dev/test/upstream"
)

// host is a process in a network namespace of its own, which is a port of the network of the test.
type host struct {
	*testing.T
	network  *network
	net      *lab.Net
	name, ip string
	args     []string
	process  *exec.Cmd
	output   *bytes.Buffer
}

// network is a bridge, to which every host is attached.
type network struct {
	*testing.T
	bridge *lab.Net
	hosts  int
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{T: t}
	var err error
	if n.bridge, err = lab.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.bridge.Close() })
	for _, line := range []string{"link add br0 type bridge", "addr add 198.18.0.1/24 dev br0", "link set br0 up"} {
		if err := n.bridge.IP(line); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// host adds a host. The process is killed when the test ends.
func (n *network) host(name string) *host {
	n.Helper()
	n.hosts++
	h := &host{T: n.T, network: n, name: name, ip: fmt.Sprintf("198.18.0.%d", 10+n.hosts)}
	var err error
	if h.net, err = lab.New(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		h.kill()
		_ = h.net.Close()
		if n.Failed() {
			n.Logf("%s printed:\n%s", name, tail(h.output))
		}
	})
	if err := lab.Link(lab.End{Net: n.bridge, Name: name}, lab.End{Net: h.net, Name: "eth0", Addrs: []string{h.ip + "/24"}}); err != nil {
		n.Fatal(err)
	}
	if err := n.bridge.IP("link set " + name + " master br0"); err != nil {
		n.Fatal(err)
	}
	return h
}

func tail(b *bytes.Buffer) string {
	if b == nil {
		return ""
	}
	return b.String()[max(0, b.Len()-5000):]
}

func (h *host) start() {
	h.Helper()
	if h.output == nil {
		h.output = &bytes.Buffer{}
	}
	h.process = h.net.Command(context.WithoutCancel(h.Context()), h.args[0], h.args[1:]...)
	h.process.Stdout, h.process.Stderr = h.output, h.output
	if err := h.process.Start(); err != nil {
		h.Fatal(err)
	}
}

func (h *host) kill() {
	if h.process != nil {
		_ = h.process.Process.Kill()
		_ = h.process.Wait() // it reports the kill
		h.process = nil
	}
}

// breakBy breaks the host in a way, and returns what mends it.
func (h *host) breakBy(how string) (mend func()) {
	h.Helper()
	link := func(state string) {
		if err := h.network.bridge.IP("link set " + h.name + " " + state); err != nil {
			h.Fatal(err)
		}
	}
	switch how {
	case "kill -9":
		h.kill()
		return h.start
	case "freeze":
		if err := program.Freeze(h.process.Process.Pid); err != nil {
			h.Fatal(err)
		}
		return func() { _ = h.process.Process.Signal(syscall.SIGCONT) }
	case "cut":
		link("down")
		return func() { link("up") }
	}
	h.Fatalf("nothing is broken by %q", how)
	return nil
}

// client returns a client in the network, which does not share connections.
func (n *network) client(config *tls.Config) *http.Client {
	t := &http.Transport{
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second}, // as client-go does
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return n.bridge.Dial(ctx, &net.Dialer{}, network, addr)
		},
	}
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	n.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// send sends a request, and returns the body of its answer; a status of 300 or more is an error.
func send(ctx context.Context, c *http.Client, limit time.Duration, method, url, body string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%d %.300s", res.StatusCode, text)
	}
	return text, err
}

// until waits until a condition holds.
func until(t *testing.T, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) { // other processes can only be polled
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, limit)
		}
	}
}

// cluster is an etcd, and the servers that share it.
type cluster struct {
	*network
	members, servers []*host
	tls              *tls.Config
	etcd, admin      *http.Client
	proa, dir        string // the program, and the data folder of the first server
}

// newCluster starts members of etcd and as many servers, or skips the test.
func newCluster(t *testing.T, size int) *cluster {
	t.Helper()
	if why := lab.Missing(); why != "" {
		t.Skip(why)
	}
	proa := os.Getenv("PROA_BIN")
	if proa == "" {
		t.Skip("PROA_BIN is not set to a proa; make packages sets it")
	}
	bins, err := upstream.Build(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{network: newNetwork(t), proa: proa}
	var initial, urls []string
	for i := range size {
		m := c.host(fmt.Sprintf("m%d", i))
		initial, urls = append(initial, m.name+"=http://"+m.ip+":2380"), append(urls, "http://"+m.ip+":2379")
		c.members = append(c.members, m)
	}
	for i, m := range c.members {
		m.args = []string{bins["etcd"], "--name", m.name, "--data-dir", t.TempDir(), "--listen-client-urls", urls[i],
			"--advertise-client-urls", urls[i], "--listen-peer-urls", "http://" + m.ip + ":2380", "--initial-advertise-peer-urls",
			"http://" + m.ip + ":2380", "--initial-cluster", strings.Join(initial, ","), "--log-level", "error"}
		m.start()
	}
	c.etcd = c.client(nil)
	until(t, "etcd has a leader", time.Minute, func() bool { return c.leader() >= 0 })
	for i := range size {
		s, dir := c.host(fmt.Sprintf("s%d", i)), t.TempDir()
		// Each server prefers another member.
		s.args = []string{proa, "server", "--data-dir", dir, "--listen", s.ip + ":6443", "--simulate", "2",
			"--etcd-servers", strings.Join(append(append([]string{}, urls[i:]...), urls[:i]...), ",")}
		if i > 0 { // servers of one cluster share their keys
			if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(c.dir, "pki"))); err != nil {
				t.Fatal(err)
			}
		} else {
			c.dir = dir
		}
		c.servers = append(c.servers, s)
		s.start()
		if i == 0 {
			until(t, "the first server writes its keys", time.Minute, func() bool { return c.readAdmin(dir) == nil })
		}
		until(t, s.name+" is ready", time.Minute, func() bool {
			_, err := send(t.Context(), c.admin, time.Second, http.MethodGet, s.url("/readyz"), "")
			return err == nil
		})
	}
	return c
}

// readAdmin reads the credentials of the administrator from the data folder of a server.
func (c *cluster) readAdmin(dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	if c.tls, err = rest.TLSConfigFor(config); err != nil {
		return err
	}
	c.admin = c.client(c.tls)
	return nil
}

func (h *host) url(path string) string { return "https://" + h.ip + ":6443" + path }

// leader returns the number of the member that leads, and -1 if there is none.
func (c *cluster) leader() int {
	for i, m := range c.members {
		text, err := send(c.Context(), c.etcd, time.Second, http.MethodGet, "http://"+m.ip+":2379/metrics", "")
		if err == nil && bytes.Contains(text, []byte("\netcd_server_is_leader 1")) {
			return i
		}
	}
	return -1
}

// put writes a key at one member, without any server.
func (c *cluster) put(ctx context.Context, m *host) error {
	key := base64.StdEncoding.EncodeToString([]byte("/control/" + m.name))
	_, err := send(ctx, c.etcd, time.Second, http.MethodPost, "http://"+m.ip+":2379/v3/kv/put", `{"key":"`+key+`","value":"eA=="}`)
	return err
}

// endpoints returns the addresses to which default/kubernetes leads, as a server says.
func (c *cluster) endpoints(at *host) (out []string) {
	text, err := send(c.Context(), c.admin, time.Second, http.MethodGet, at.url("/api/v1/namespaces/default/endpoints/kubernetes"), "")
	if err != nil {
		return nil
	}
	for _, s := range c.servers {
		if bytes.Contains(text, []byte(`"`+s.ip+`"`)) {
			out = append(out, s.name)
		}
	}
	return out
}
