package run_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// TestBothHTTP2Servers checks that both HTTP/2 servers that the setting http2 chooses from answer over HTTP/2, and reject a
// cipher suite that HTTP/2 forbids.
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
			weak := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{
				tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}}
			if socket, err := weak.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.Config.Host, "https://")); err == nil {
				_ = socket.Close()
				t.Error("a cipher suite without authenticated encryption was accepted")
			}
		})
	}
}

// TestHTTP2WindowOfAnonymousClients checks that only authenticated clients get a larger flow-control window, with which they may
// send bodies of more than 64 KiB before they are read.
func TestHTTP2WindowOfAnonymousClients(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t, proatest.Memory())
	config, err := rest.TLSConfigFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"h2"}
	anonymous := config.Clone()
	anonymous.Certificates, anonymous.GetClientCertificate = nil, nil
	for name, client := range map[string]struct {
		config *tls.Config
		status string
		grows  bool
	}{
		"anonymous":     {anonymous, "200", false},
		"administrator": {config, "200", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := strings.TrimPrefix(c.Config.Host, "https://")
			socket, err := (&tls.Dialer{Config: client.config}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			_ = socket.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(socket, http2.ClientPreface)
			f := http2.NewFramer(socket, socket)
			f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			_ = f.WriteSettings()
			var block strings.Builder
			e := hpack.NewEncoder(&block)
			for _, p := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "proa"}, {":path", "/version"}} {
				_ = e.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true,
				EndHeaders: true})
			status, grew := "", false
			for pinged, done := false, false; !done; {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				switch x := frame.(type) {
				case *http2.MetaHeadersFrame:
					status = x.PseudoValue("status")
				case *http2.WindowUpdateFrame:
					grew = grew || x.StreamID == 0 && x.Increment > 500_000
				case *http2.PingFrame:
					done = true
				}
				if status != "" && !pinged {
					pinged = true
					_ = f.WritePing(false, [8]byte{})
				}
			}
			if status != client.status || grew != client.grows {
				t.Errorf("got %s, and the window grew: %v", status, grew)
			}
		})
	}
}
