package service

import (
	"net"
	"testing"
	"time"

	"proa.dev/network/nettest"
)

// TestUnansweredAreForgotten has a client use a source port again with which it has called a removed endpoint that
// never answered.
func TestUnansweredAreForgotten(t *testing.T) {
	n := newNode(t)
	a, c := n.backend("a"), n.backend("client")
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
	n.eventually("no endpoint", func() string { return kindOf(ask()) }, "refused")
	n.apply(slice("web-1", "web", 80, "TCP", "198.51.100.9 here")) // the other end of the wire passes nothing on
	n.eventually("nobody answers", func() string { return kindOf(ask()) }, "silence")
	n.apply(slice("web-1", "web", 80, "TCP", a.v4+" here"))
	n.eventually("the same port again", ask, "a "+c.v4)
}
