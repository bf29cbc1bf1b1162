package nodeconnection

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/streamoptions"
)

const (
	// maxTunnels is the number of tunnels that may be open.
	maxTunnels = 10000
	// openTimeout is how long an agent may take to connect.
	openTimeout = 30 * time.Second
	// maxText is the length of the longest text that is read from an agent: a header, or an error.
	maxText = 1 << 10
)

// tunnel is a connection that the agent of a node has opened, over which the server reaches the node. The server sends
// requests, and the agent responds.
type tunnel struct {
	node string
	// from identifies the process that has opened it, and to is the name or address at which that has reached this
	// server.
	from, to string
	// cert is the client certificate with which it was opened.
	cert *x509.Certificate
	// own are the addresses of the node: those it claims that its Node has too, or from which it connects. translated
	// says that it connects from another address (NAT), so that its addresses may belong to another machine here.
	own        []netip.Addr
	translated bool
	conn       *http.ClientConn
	// pods is the transport to the Pods of the node. Other nodes may use the same addresses, so connections are not
	// shared.
	pods *http.Transport
	// shut is until when, in Unix nanoseconds, only the tunnel is used: to the node, and to its Pods.
	shut [2]atomic.Int64
	// expiry closes the tunnel when the certificate with which it was opened expires.
	expiry *time.Timer
}

// Open turns the connection of a request into the tunnel of the requesting node. It replaces an existing tunnel of the
// node. An error is returned before any response.
func (a *Agents) Open(w http.ResponseWriter, req *http.Request, who user.Info) error {
	t, err := a.tunnelFor(req, who)
	if err != nil {
		return err
	}
	if err := a.checkRoom(t); err != nil {
		if _, other := errors.AsType[*otherError](err); other {
			a.Log.WarnContext(req.Context(), "somebody else has the certificate of a node, and was refused a second tunnel; "+
				"if that is not an agent that was just set up again, find out who it is",
				"node", t.node, "from", req.RemoteAddr, "serial", t.cert.SerialNumber.String())
		}
		return err
	}
	conn, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return apierrors.NewBadRequest("a tunnel needs a connection of its own, over HTTP/1.1")
	}
	if err := t.begin(req.Context(), conn, early); err != nil {
		_ = conn.Close()
		a.Log.DebugContext(req.Context(), "a tunnel was not opened", "node", t.node, "err", err)
		return nil
	}
	t.pods = transport()
	// leaves the other streams for new connections
	t.pods.TLSClientConfig, t.pods.MaxIdleConns = a.direct.TLSClientConfig, streamoptions.TunnelStreams/8
	t.pods.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return a.Dial(ctx, t.node, addr) }
	t.expiry = time.AfterFunc(time.Until(t.cert.NotAfter), func() { _ = t.conn.Close() })
	old, err := a.addTunnel(t)
	if err != nil {
		t.close()
		a.Log.DebugContext(req.Context(), "a tunnel was not opened", "node", t.node, "err", err)
		return nil
	}
	if old != nil {
		old.close()
	}
	a.Log.InfoContext(req.Context(), "a node has opened a tunnel", "node", t.node, "from", conn.RemoteAddr().String(), "translated",
		t.translated)
	t.conn.SetStateHook(func(c *http.ClientConn) {
		if err := c.Err(); err != nil && a.removeTunnel(t) {
			t.close()
			a.Log.Info("the tunnel of a node has ended", "node", t.node)
		}
	})
	return nil
}

// tunnelFor returns the tunnel that a request asks for, if it is allowed. Only the certificate of a node opens a
// tunnel, and only its own: neither tokens nor impersonation or front proxies do. TLS accepts any certificate, so that
// the one of the connection counts only if its chain is verified here, and if the request was authenticated by it.
func (a *Agents) tunnelFor(req *http.Request, who user.Info) (*tunnel, error) {
	no := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "tunnels"}, "", errors.New(why))
	}
	node, ok := strings.CutPrefix(who.GetName(), "system:node:")
	if !ok || node == "" || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return nil, no("only nodes have tunnels")
	}
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 || a.Verify == nil {
		return nil, no("a tunnel is opened with the certificate of its node")
	}
	cert := req.TLS.PeerCertificates[0]
	holder, err := a.Verify(req.TLS.PeerCertificates)
	if err != nil || checkAgent(cert, node) != nil || !isSameUser(holder, who) {
		return nil, no("a tunnel is opened with the certificate of its node")
	}
	if req.Method != http.MethodPost || req.ProtoMajor != 1 || req.Header.Get("Upgrade") != streamoptions.TunnelProtocol ||
		!strings.EqualFold(req.Header.Get("Connection"), "upgrade") {
		return nil, apierrors.NewBadRequest("a tunnel is a POST over HTTP/1.1 that asks for an upgrade to " + streamoptions.TunnelProtocol)
	}
	t := &tunnel{node: node, cert: cert, from: req.Header.Get(streamoptions.TunnelFrom), to: req.Host}
	at := req.Header.Get(streamoptions.TunnelAt)
	if t.from == "" || len(t.from) > maxText || len(at) > maxText {
		return nil, apierrors.NewBadRequest("the header " + streamoptions.TunnelFrom + " must name the agent, and " +
			streamoptions.TunnelAt + " its addresses")
	}
	var claimed []netip.Addr
	for text := range strings.SplitSeq(at, ",") {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the header %s must have addresses, and %q is none", streamoptions.TunnelAt,
				text))
		}
		claimed = append(claimed, ip.Unmap())
	}
	var seen netip.Addr
	if comes, err := netip.ParseAddrPort(req.RemoteAddr); err == nil {
		seen = comes.Addr().Unmap().WithZone("")
	}
	t.own = a.verifiedAddresses(req.Context(), node, claimed, seen)
	t.translated = !slices.Contains(t.own, seen)
	return t, nil
}

// verifiedAddresses returns those of the claimed addresses that belong to a node: the one from which it connects, and
// those in its Node. Loopback, link-local, multicast and Service addresses never count.
func (a *Agents) verifiedAddresses(ctx context.Context, node string, claimed []netip.Addr, seen netip.Addr) (own []netip.Addr) {
	known := map[netip.Addr]bool{}
	if a.Node != nil {
		if n, err := a.Node(ctx, node); err == nil {
			for _, at := range n.Status.Addresses {
				ip, err := netip.ParseAddr(at.Address)
				ip = ip.Unmap()
				service := func(p netip.Prefix) bool { return p.Contains(ip) }
				if err == nil && ip.IsGlobalUnicast() && !slices.ContainsFunc(a.ServiceCIDRs, service) {
					known[ip] = true
				}
			}
		}
	}
	for _, ip := range claimed {
		if known[ip] || ip == seen {
			own = append(own, ip)
		}
	}
	return own
}

// isSameUser reports whether a request was made by the holder of a certificate itself: with that certificate, and
// without impersonation.
func isSameUser(holder, who user.Info) bool {
	return holder.GetName() == who.GetName() && holder.GetUID() == who.GetUID() && slices.Equal(holder.GetGroups(), who.GetGroups()) &&
		slices.Equal(holder.GetExtra()[user.CredentialIDKey], who.GetExtra()[user.CredentialIDKey])
}

// isSameAgent reports whether two tunnels were opened by the same agent: with the same certificate, or, since
// certificates are renewed, by the same process, whose random name only it and the server know.
func (t *tunnel) isSameAgent(o *tunnel) bool {
	return t.cert.Equal(o.cert) || subtle.ConstantTimeCompare([]byte(t.from), []byte(o.from)) == 1
}

// begin responds to the request, and becomes the client of the connection.
func (t *tunnel) begin(ctx context.Context, conn net.Conn, early *bufio.ReadWriter) error {
	if early.Reader.Buffered() > 0 {
		return errors.New("the agent speaks before it is asked")
	}
	if err := conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+streamoptions.TunnelProtocol+"\r\n\r\n"); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS encrypts the connection already
	by := &http.Transport{
		Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
		// The type is hidden, otherwise the transport would take it for a connection that is not encrypted yet.
		DialContext: func(context.Context, string, string) (net.Conn, error) { return struct{ net.Conn }{conn}, nil },
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     streamoptions.TunnelBuffer,
			MaxReceiveBufferPerConnection: streamoptions.TunnelBuffer * streamoptions.TunnelStreams,
			// Agents send pings twice as often; these are for agents that have disappeared silently.
			SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
	}
	var err error
	t.conn, err = by.NewClientConn(ctx, "http", "node:1") // it is not dialed
	return err
}

// close closes a tunnel that was removed, with all connections through it.
func (t *tunnel) close() {
	t.expiry.Stop()
	_ = t.conn.Close()
	t.pods.CloseIdleConnections()
}

// dial connects to an address from the node.
func (t *tunnel) dial(ctx context.Context, addr string) (net.Conn, error) {
	if err := t.conn.Reserve(); err != nil {
		return nil, fmt.Errorf("the tunnel of node %s is gone, or full: %w", t.node, err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ctx, stop := context.WithTimeout(ctx, openTimeout)
	defer stop()
	late := context.AfterFunc(ctx, end)
	out, in := io.Pipe()
	req := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Scheme: "http", Host: addr}, Host: addr, Header: http.Header{}, Body: out,
		ContentLength: -1,
	}).WithContext(life)
	resp, err := t.conn.RoundTrip(req)
	if err == nil && !late() {
		_ = resp.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		_ = in.Close()
		return nil, fmt.Errorf("connect to %s through the tunnel of node %s: %w", addr, t.node, err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText))
		_ = resp.Body.Close()
		end()
		_ = in.Close()
		return nil, fmt.Errorf("connect to %s through the tunnel of node %s: %s", addr, t.node, strings.TrimSpace(string(text)))
	}
	return &tunnelConn{in: in, out: resp.Body, end: end, to: addr}, nil
}
