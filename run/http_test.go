package run_test

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// TestBothHTTP2Servers holds that the setting http2 chooses the server, and that clients speak HTTP/2 with either.
func TestBothHTTP2Servers(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"own", "std"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			c := proatest.Start(t, proatest.Memory(), proatest.HTTP2(which))
			hc, err := rest.HTTPClientFor(c.Config)
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+"/api/v1/namespaces", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := hc.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
				t.Errorf("got %s %s", res.Proto, res.Status)
			}
		})
	}
}
