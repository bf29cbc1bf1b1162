package crash

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"proa.dev/test/ports"
	"proa.dev/test/program"
	"proa.dev/test/upstream"
)

// etcdCluster is an etcd of one or three members, each a process of its own.
type etcdCluster struct {
	*testing.T
	members []*etcdMember
}

// etcdMember is one member; it keeps its data folder and its addresses when it is started again.
type etcdMember struct {
	args    []string
	url     string
	process *exec.Cmd
	output  *bytes.Buffer
}

// startEtcd starts an etcd of so many members and waits until it answers.
func startEtcd(t *testing.T, members int) *etcdCluster {
	t.Helper()
	bins, err := upstream.Build(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdCluster{T: t}
	var initial []string
	for i := range members {
		urls := freeURLs(t, 2)
		name := fmt.Sprintf("m%d", i)
		initial = append(initial, name+"="+urls[1])
		e.members = append(e.members, &etcdMember{url: urls[0], args: []string{
			bins["etcd"], "--name", name, "--data-dir", t.TempDir(), "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
			"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--log-level", "error",
		}})
	}
	t.Cleanup(func() {
		for _, m := range e.members {
			m.kill()
		}
	})
	for _, m := range e.members {
		m.args = append(m.args, "--initial-cluster", strings.Join(initial, ","))
		e.start(m)
	}
	e.untilHealthy()
	return e
}

// freeURLs returns URLs with ports that are not in use.
func freeURLs(t *testing.T, n int) (urls []string) {
	t.Helper()
	for range n {
		urls = append(urls, "http://"+ports.Address(t))
	}
	return urls
}

// urls returns the client URLs in the form of --etcd-servers.
func (e *etcdCluster) urls() string {
	var out []string
	for _, m := range e.members {
		out = append(out, m.url)
	}
	return strings.Join(out, ",")
}

func (e *etcdCluster) start(m *etcdMember) {
	e.Helper()
	m.output = &bytes.Buffer{}
	m.process = exec.Command(m.args[0], m.args[1:]...)
	m.process.Stdout, m.process.Stderr = m.output, m.output
	if err := m.process.Start(); err != nil {
		e.Fatal(err)
	}
}

func (m *etcdMember) kill() {
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill()
	_ = m.process.Wait() // the error reports the kill
	m.process = nil
}

// terminate ends a member with SIGTERM.
func (m *etcdMember) terminate() {
	_ = m.process.Process.Signal(syscall.SIGTERM)
	_ = m.process.Wait() // the error reports the signal
	m.process = nil
}

// outage makes etcd unavailable in the given way, and returns a function that makes it available again.
func (e *etcdCluster) outage(kind string) (end func()) {
	e.Helper()
	restart := func(members []*etcdMember) func() {
		return func() {
			for _, m := range members {
				e.start(m)
			}
		}
	}
	switch kind {
	case "kill -9":
		e.members[0].kill()
		return restart(e.members[:1])
	case "restart":
		e.members[0].terminate()
		return restart(e.members[:1])
	case "frozen", "one of three frozen":
		if err := program.Freeze(e.members[0].process.Process.Pid); err != nil {
			e.Fatal(err)
		}
		return func() { _ = e.members[0].process.Process.Signal(syscall.SIGCONT) }
	case "quorum lost":
		for _, m := range e.members[1:] {
			m.kill()
		}
		return restart(e.members[1:])
	}
	e.Fatalf("no outage is called %q", kind)
	return nil
}

// untilHealthy waits until every member answers a read that needs a quorum.
func (e *etcdCluster) untilHealthy() {
	e.Helper()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for _, m := range e.members {
		for end := time.Now().Add(time.Minute); !healthy(e.Context(), client, m.url); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				e.Fatalf("etcd does not answer in a minute: %s", m.output)
			}
		}
	}
}

func healthy(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", http.NoBody)
	if err != nil {
		return false
	}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
