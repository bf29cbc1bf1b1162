package crash

import (
	"bytes"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWhyDuringOutage takes etcd away and sends a request to create and one to change a Deployment. Both are answered with 503, and
// "proa why" names hop 7 and etcd for both. Of an object that nobody has tried to change it says what the server remembers, and of one
// that nobody has tried to make it says nothing.
func TestWhyDuringOutage(t *testing.T) {
	for _, kind := range []string{"frozen", "kill -9"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			etcd := startEtcd(t, 1)
			c := newCluster(t)
			c.args = []string{"--etcd-servers", etcd.urls(), "--simulate", "1"}
			c.start()
			createNamespace(c)
			client := &outageClient{cluster: c, http: c.client()}
			defer client.http.CloseIdleConnections()
			const deployments = "/apis/apps/v1/namespaces/crash/deployments"
			for _, name := range []string{"web", "other"} {
				client.must(http.MethodPost, deployments, strings.Replace(deployment, `{"name":"web"}`, `{"name":"`+name+`"}`, 1))
				c.untilWhy("deployment/"+name, 0, "deployment/"+name+" in crash: working.")
			}
			end := etcd.outage(kind)
			defer end()
			for _, write := range []struct{ method, path, body string }{
				{http.MethodPost, deployments, strings.Replace(deployment, `{"name":"web"}`, `{"name":"later"}`, 1)},
				{http.MethodPatch, deployments + "/web", `{"spec":{"replicas":2}}`},
			} {
				_, err := client.request(t.Context(), write.method, write.path, write.body)
				if err == nil || !strings.HasPrefix(err.Error(), "503 ") || !strings.Contains(err.Error(), "the store is not available") {
					t.Errorf("%s %s while etcd is away: %v, want 503", write.method, write.path, err)
				}
			}
			const what = "\n  what to do\n    check that etcd runs and that the server reaches it (--etcd-servers)"
			c.untilWhy("deployment/later", 3, "deployment/later in crash: stuck at hop 7 (commit). The Deployment does not exist: the last request to "+
				"make it was refused because the store (etcd) did not answer: ", "record of commit ", what, "\nNot seen:\n  what is stored now")
			c.untilWhy("deployment/web", 3, "deployment/web in crash: stuck at hop 7 (commit). The last request to change the Deployment was refused "+
				"because the store (etcd) does not answer: ", "The server remembers: The Deployment", "record of commit ", what,
				"\nNot seen:\n  what is stored now")
			c.untilWhy("deployment/other", 0, "deployment/other in crash: working. ", "\nNot seen:\n  what is stored now")
			c.untilWhy("deployment/none", 1, "proa: the store is not available: ")
		})
	}
}

// untilWhy runs "proa why" until it ends with a code and its output begins with the first of the texts and has the others.
func (c *cluster) untilWhy(object string, code int, texts ...string) {
	c.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		config := filepath.Join(c.dir, "admin.kubeconfig")
		out, err := exec.CommandContext(c.Context(), binary, "why", "--kubeconfig", config, "-n", "crash", object).CombinedOutput()
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		} else if err != nil {
			c.Fatal(err)
		}
		good := got == code && bytes.HasPrefix(out, []byte(texts[0]))
		for _, text := range texts[1:] {
			good = good && bytes.Contains(out, []byte(text))
		}
		if good {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("proa why %s ends with %d and\n%s\nwant %d and %q", object, got, out, code, texts)
		}
	}
}
