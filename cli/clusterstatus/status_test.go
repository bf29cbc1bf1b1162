package clusterstatus

import (
	"bytes"
	"testing"

	"proa.dev/cli/localcluster"
)

// FuzzStatus checks that answers of a server are parsed as far as possible.
func FuzzStatus(f *testing.F) {
	f.Add([]byte("[+]ping ok\n[-]etcd failed: away\nreadyz check failed\n"))
	f.Add([]byte("apiserver_resource_objects{group=\"apps\",resource=\"deployments\"} 3\napiserver_storage_objects{resource=\"pods\"} 1e3\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, c := range localcluster.ParseChecks(body) {
			if !bytes.Contains(body, []byte("]"+c.Name)) || !bytes.Contains(body, []byte(c.Text)) {
				t.Errorf("a check %+v out of %q", c, body)
			}
		}
		for resource, n := range parseObjects(body, "apiserver_resource_objects{") {
			if n < 0 {
				t.Errorf("%d %s", n, resource)
			}
		}
	})
}
