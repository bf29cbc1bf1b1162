package kubeletapi

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// TestDisconnectedClientsLeaveNoGoroutines checks that clients that disconnect with open streams leave no goroutines.
func TestDisconnectedClientsLeaveNoGoroutines(t *testing.T) {
	r, port := newTestServer(t), startUppercaseServer(t)
	r.request(http.MethodGet, "/healthz", "all")
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 20 {
		for path, protocol := range map[string]string{
			"/exec/ns/p/c?command=a&input=1&output=1&error=1": "v5.channel.k8s.io",
			"/exec/ns/p/c?command=a&input=1&output=1":         "v4.channel.k8s.io",
			"/portForward/ns/p":                               "SPDY/3.1+portforward.k8s.io",
		} {
			ws := r.dialWebSocket(path, protocol)
			if strings.HasPrefix(protocol, "SPDY") {
				ws.PayloadType = websocket.BinaryFrame
				conn, err := spdy.NewClientConnection(ws)
				if err != nil {
					t.Fatal(err)
				}
				for _, kind := range []string{"error", "data"} {
					if _, err := conn.CreateStream(http.Header{"Streamtype": {kind}, "Port": {port}, "Requestid": {"1"}}); err != nil {
						t.Fatal(err)
					}
				}
			} else if err := websocket.Message.Send(ws, []byte("\x00half a line")); err != nil {
				t.Fatal(err)
			}
			_ = ws.Close()
		}
	}
	for wait := time.Millisecond; runtime.NumGoroutine() > before+5; wait *= 2 {
		if wait > 10*time.Second {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines are left of %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(wait)
	}
}
