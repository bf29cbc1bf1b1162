package e2e

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"proa.dev/test/ports"
)

// TestIngressOutlivesServer sends requests through an Ingress while the server is killed, while the next one adopts the agent, and while
// another one replaces the agent because its settings have changed. None may fail.
func TestIngressOutlivesServer(t *testing.T) {
	t.Parallel()
	port := ports.Strings(t, 1)[0]
	k := killTest{machine: newMachine(t, needNode(t), "--ingress-http-port", port, "--ingress-https-port", "0")}
	k.web()
	const route = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`
	k.must(os.WriteFile(filepath.Join(k.dir, "route.yaml"), []byte(route), 0o600))
	k.kubectl("label", "pod", "web", "app=web")
	k.kubectl("apply", "-f", "route.yaml")
	url := "http://127.0.0.1:" + port + "/ready"
	request := func(c *http.Client) error {
		resp, err := c.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %v", resp.Status, err)
		}
		return nil
	}
	k.until("the Ingress does not answer", func() bool { return request(http.DefaultClient) == nil })

	stop := make(chan struct{})
	var sent, failed atomic.Int64
	var clients sync.WaitGroup
	endClients := sync.OnceFunc(func() {
		close(stop)
		clients.Wait()
	})
	defer endClients()
	for i := range 4 {
		c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				sent.Add(1)
				if err := request(c); err != nil && failed.Add(1) <= 5 {
					t.Errorf("request %d: %v", sent.Load(), err)
				}
			}
		})
	}
	agent := func() string { // empty while one agent has left the node and the next has not come
		t.Helper()
		text, err := os.ReadFile(filepath.Join(k.data(), "node", "server.pid"))
		if !errors.Is(err, fs.ErrNotExist) {
			k.must(err)
		}
		return strings.TrimSpace(string(text))
	}
	more := func(what string) {
		t.Helper()
		before := sent.Load()
		k.until(what+": no requests", func() bool { return sent.Load() > before+100 })
	}
	first := agent()
	k.kill("server")
	more("without a server")
	k.up()
	if now := agent(); now != first {
		t.Errorf("the agent %s was not adopted: %s runs", first, now)
	}
	more("after the adoption")
	k.must(syscall.Kill(k.pid(), syscall.SIGTERM))
	k.until("the server does not end", k.isDown)
	more("after SIGTERM")
	k.args = append(k.args, "--node-labels", "changed=yes")
	k.up()
	k.until("the agent was not replaced", func() bool { return agent() != first && agent() != "" })
	k.until("the former agent still runs", func() bool { return state(atoi(t, first)) == "" })
	more("after the replacement")
	endClients()
	t.Logf("%d requests, %d failed", sent.Load(), failed.Load())
}

func atoi(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
