package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// TestWatchByWebSocket follows a watch as a browser would.
func TestWatchByWebSocket(t *testing.T) {
	c := proatest.Start(t)
	w := newHTTPClient(t, c)
	w.must(201, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	config, err := websocket.NewConfig(strings.Replace(c.Config.Host, "https", "wss", 1)+
		"/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Da", "https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	if config.TlsConfig, err = rest.TLSConfigFor(c.Config); err != nil {
		t.Fatal(err)
	}
	config.TlsConfig.NextProtos = []string{"http/1.1"}
	config.Header = http.Header{}
	ws, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.Close() }()
	for _, want := range []string{"ADDED", "DELETED"} {
		var text []byte
		if err := websocket.Message.Receive(ws, &text); err != nil {
			t.Fatal(err)
		}
		var e struct {
			Type   string         `json:"type"`
			Object map[string]any `json:"object"`
		}
		if err := json.Unmarshal(text, &e); err != nil || e.Type != want || fieldAt(e.Object, "metadata", "name") != "a" {
			t.Fatalf("got %s (%v), want %s", text, err, want)
		}
		if want == "ADDED" {
			w.must(200, "DELETE", "/api/v1/namespaces/default/configmaps/a", "")
		}
	}
}
