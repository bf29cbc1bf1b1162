package h2

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"proa.dev/test/upstream"
)

// TestH2Spec runs the conformance tests of h2spec. The handler waits for the end of a request, so that it does
// not depend on timing whether a stream is still open when a test misuses it.
func TestH2Spec(t *testing.T) {
	spec, err := upstream.Build(t.Context(), "h2spec")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("h2spec cannot be built: %v", err)
		}
		t.Skipf("h2spec cannot be built here (it is made from modules of the Go proxy): %v", err)
	}
	s := newTestServer(t, implementations()["ours"], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "hello, world")
	}))
	at, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), spec["h2spec"], "--tls", "--insecure", "--strict", "--host", at.Hostname(), "--port",
		at.Port()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "146 tests, 146 passed, 0 skipped, 0 failed") {
		t.Errorf("%v\n%s", err, out)
	}
}
