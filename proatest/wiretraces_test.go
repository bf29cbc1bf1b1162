package proatest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/trace"
)

// TestObjectsOfControllersInWireTrace checks that a wiretrace has what the callers in the server's process handed over, as JSON: the
// ReplicaSet of the Deployment controller, the Pods, the bindings of the scheduler, and the status that the node wrote. A Secret that
// was written in the same way is not in it.
func TestObjectsOfControllersInWireTrace(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), proatest.Simulate(2))
		defer c.Stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, err := c.Client.Create(t.Context(), gr.Deployments, tracedDeployment("default")); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
			Data: map[string][]byte{"p": []byte("hunter2")}}
		if _, err := c.Client.Create(t.Context(), gr.Secrets, secret); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		read := func(name string) *trace.WireTrace {
			o, err := c.Client.Get(t.Context(), trace.WireTracesResource(), "default", name, "")
			if err != nil {
				t.Fatal(err)
			}
			return o.(*trace.WireTrace)
		}
		want := map[string]string{ // what is in the request, by the beginning of the name of the span
			"create deployments.apps": `{"kind":"Deployment","apiVersion":"apps/v1"`,
			"create replicasets.apps": `{"kind":"ReplicaSet","apiVersion":"apps/v1"`,
			"create pods/binding":     `"target":{"kind":"Node","name":"`,
			"create pods":             `{"kind":"Pod","apiVersion":"v1"`,
			"update pods/status":      `"phase":"Running"`,
		}
		for _, s := range read("deployments.apps:web").Spans {
			if s.Parent != "" || s.Wire == nil {
				continue
			}
			w := s.Wire
			for _, text := range []string{w.Request.Text, w.Response.Text} {
				if !json.Valid([]byte(text)) || !w.InProcess || len(text) > hop.MaxBody {
					t.Errorf("%s: in process %t, %s", s.Name, w.InProcess, text)
				}
			}
			name := s.Name
			if fields := strings.Fields(s.Name); len(fields) > 1 {
				name = fields[0] + " " + fields[1]
			}
			if beginning, wanted := want[name]; wanted && strings.Contains(w.Request.Text, beginning) {
				delete(want, name)
			}
		}
		for name, beginning := range want {
			t.Errorf("no span %s has the request %s", name, beginning)
		}
		spans := read("secrets:s").Spans
		for _, s := range spans {
			if s.Wire != nil {
				t.Errorf("the trace of a Secret has %+v", s.Wire)
			}
		}
		if len(spans) == 0 {
			t.Error("the trace of the Secret has no spans")
		}
	})
}

// TestNoBodiesInWireTrace checks that --trace-bodies=false keeps nothing of callers in the server's process either.
func TestNoBodiesInWireTrace(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		off := func(c *run.Config) { c.NoTraceBodies = true }
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), proatest.Controllers(), off)
		defer c.Stop()
		time.Sleep(5 * time.Second) // the first objects of a cluster are too many for bodies of all
		synctest.Wait()
		if _, err := c.Client.Create(t.Context(), gr.Deployments, tracedDeployment("default")); err != nil {
			t.Fatal(err)
		}
		o, err := c.Client.Get(t.Context(), trace.WireTracesResource(), "default", "deployments.apps:web", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range o.(*trace.WireTrace).Spans {
			if s.Wire != nil {
				t.Errorf("%s has %+v", s.Name, s.Wire)
			}
		}
	})
}
