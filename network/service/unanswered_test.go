package service

import (
	"net"
	"testing"
	"time"

	"proa.dev/network/nettest"
)

// TestUnansweredConnectionsAreForgotten has a client reuse a source port with which it has called a removed endpoint that
// never answered.
func TestUnansweredConnectionsAreForgotten(t *testing.T) {
	n := newNode(t)
	a, c := n.addBackend("a"), n.addBackend("client")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {type: ClusterIP, clusterIP: 10.96.0.10, ports: [{port: 80}]}
`)
	ask := func() (got string) {
		c.Do(func() {
			d := net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.v4), Port: 41234}}
			conn, err := d.DialContext(t.Context(), "tcp", "10.96.0.10:80")
			if err != nil {
				got = err.Error()
				return
			}
			defer conn.Close()
			_ = conn.(*net.TCPConn).SetLinger(0) // so that its port can be used again at once
			got = nettest.Question(conn)
		})
		return got
	}
	n.eventually("no endpoint", func() string { return outcome(ask()) }, "refused")
	n.apply(slice("web-1", "web", 80, "TCP", "198.51.100.9 here")) // an address that does not answer
	n.eventually("an endpoint that does not answer", func() string { return outcome(ask()) }, "no answer")
	n.apply(slice("web-1", "web", 80, "TCP", a.v4+" here"))
	n.eventually("the same port again", ask, "a "+c.v4)
}
