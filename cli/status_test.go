package cli

import (
	"bytes"
	"testing"
)

// What a server says of itself is read as far as it can be.
func FuzzStatus(f *testing.F) {
	f.Add([]byte("[+]ping ok\n[-]etcd failed: away\nreadyz check failed\n"))
	f.Add([]byte("apiserver_resource_objects{group=\"apps\",resource=\"deployments\"} 3\napiserver_storage_objects{resource=\"pods\"} 1e3\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, c := range parseChecks(body) {
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
