package crash

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTraceOfSeveralServers runs two servers on one etcd: one gets a Deployment, and the other runs controllers and scheduler. A
// trace has the records of both, whichever server is asked, and names a server that cannot be reached. Other clients may not read
// a server's records.
func TestTraceOfSeveralServers(t *testing.T) {
	etcd := startEtcd(t, 1)
	a, b := newCluster(t), newCluster(t)
	a.args = []string{"--etcd-servers", etcd.urls(), "--simulate", "2"}
	b.args = []string{"--etcd-servers", etcd.urls(), "--controllers", "-*"}
	a.start()
	if err := os.CopyFS(filepath.Join(b.dir, "pki"), os.DirFS(filepath.Join(a.dir, "pki"))); err != nil {
		t.Fatal(err)
	}
	b.start()
	r := &rollout{T: t, client: connect(t, b)}
	r.create()
	r.until("the Deployment is available", func(d *unstructured.Unstructured) bool { return status(d, "availableReplicas") == replicas })
	for name, c := range map[string]*cluster{"the one with the controllers": a, "the other one": b} {
		untilTrace(t, c, name, "a request and an attempt to schedule, of all servers", func(text string) bool {
			return strings.Contains(text, `"name":"create deployments.apps"`) && strings.Contains(text, `"name":"schedule"`) &&
				!strings.Contains(text, `"unseen"`)
		})
	}
	for name, c := range map[string]*cluster{"the one with the controllers": a, "the other one": b} {
		untilListed(t, c, "traces", name, "the trace of the Deployment", func(text string) bool {
			return strings.Contains(text, `"name":"deployments.apps:web"`) && strings.Contains(text, `"state":"Ready"`) &&
				!strings.Contains(text, `"unseen"`)
		})
		untilListed(t, c, "schedulingattempts", name, "an attempt of the scheduler", func(text string) bool {
			return strings.Contains(text, `"kind":"SchedulingAttempt"`) && strings.Contains(text, `"chosenNode":"sim-`)
		})
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+"/proa/records", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Impersonate-User", "kube-apiserver-kubelet-client")
	req.Header.Set("Impersonate-Group", "system:masters")
	res, err := b.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("an administrator who asks for records: %s", res.Status)
	}
	a.kill()
	untilListed(t, b, "traces", "the one that is left", "the server that is gone", func(text string) bool {
		return strings.Contains(text, `"unseen":["apiserver-`) && strings.Contains(text, a.addr)
	})
	untilTrace(t, b, "the one that is left", "the server that is gone", func(text string) bool {
		return strings.Contains(text, `"unseen":["apiserver-`) && strings.Contains(text, a.addr)
	})
}

// untilListed lists a resource of the group of traces at a server until the list is as wanted.
func untilListed(t *testing.T, c *cluster, resource, name, want string, holds func(text string) bool) {
	t.Helper()
	list := connect(t, c).Resource(schema.GroupVersionResource{Group: "trace.proa.dev", Version: "v1", Resource: resource})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for {
		text := ""
		got, err := list.Namespace("default").List(ctx, metav1.ListOptions{})
		if err == nil {
			body, jsonErr := got.MarshalJSON()
			if text = string(body); jsonErr == nil && holds(text) {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v, the list of %s has no %s: %.3000s", name, err, resource, want, text)
		}
		time.Sleep(100 * time.Millisecond) // another process can only be polled
	}
}

// untilTrace reads the trace of the Deployment from a server until it is as wanted.
func untilTrace(t *testing.T, c *cluster, name, want string, holds func(text string) bool) {
	t.Helper()
	traces := connect(t, c).Resource(schema.GroupVersionResource{Group: "trace.proa.dev", Version: "v1", Resource: "traces"})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for text := "none"; ; {
		got, err := traces.Namespace("default").Get(ctx, "deployments.apps:web", metav1.GetOptions{})
		if err == nil {
			body, jsonErr := got.MarshalJSON()
			if text = string(body); jsonErr == nil && holds(text) {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v, the trace has no %s: %.3000s", name, err, want, text)
		}
		time.Sleep(100 * time.Millisecond) // another process can only be polled
	}
}
