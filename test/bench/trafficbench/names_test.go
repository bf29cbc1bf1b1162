package trafficbench

import (
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestExchange asks a server that answers late: with the answer to an older question first.
func TestExchange(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 512)
		n, from, err := server.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil {
			return
		}
		for _, id := range []uint16{m.ID - 1, m.ID} {
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true}, Questions: m.Questions}
			if id == m.ID {
				head := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}
				answer.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}}}}
			}
			packet, err := answer.Pack()
			if err != nil {
				return
			}
			_, _ = server.WriteTo(packet, from)
		}
	}()
	socket, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	packet, err := question(7, "svc-00001.bench.svc.cluster.local.")
	if err != nil {
		t.Fatal(err)
	}
	if code, answers, err := exchange(socket, packet, make([]byte, 512), 7); code != dnsmessage.RCodeSuccess || answers != 1 || err != nil {
		t.Errorf("%v, %d answers, %v", code, answers, err)
	}
	if _, err := question(1, "no dot at the end"); err == nil {
		t.Error("a name that is not whole was taken")
	}
}
