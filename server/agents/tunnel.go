package agents

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

	"proa.dev/kinds/stream"
)

const (
	// maxTunnels bounds the tunnels that are open.
	maxTunnels = 10000
	// opening is how long the agent may take to connect.
	opening = 30 * time.Second
	// maxWords bounds what an agent says about itself, and about what went wrong.
	maxWords = 1 << 10
)

// tunnel is a connection that the agent of a node has opened, over which it is reached. Nothing comes in by it but answers: the
// server is the one that asks.
type tunnel struct {
	node string
	// from is the process that has opened it, and to the name or address at which that has found this server.
	from, to string
	// cert is the certificate that has opened it.
	cert *x509.Certificate
	// own are the addresses of the node: those it names that its Node has too, or that the server sees it come from. Translated
	// says that it comes from another one: what has these addresses here is somebody else.
	own        []netip.Addr
	translated bool
	conn       *http.ClientConn
	// pods leads to the Pods of the node. Addresses may mean something else on other nodes, so connections are not shared.
	pods *http.Transport
	// shut is until when, in Unix nanoseconds, other ways than this one are not tried: to the node, and to its Pods.
	shut [2]atomic.Int64
	// expiry ends it together with the certificate that has opened it.
	expiry *time.Timer
}

// Open turns the connection of a request into the tunnel of the node that asks. It takes the place of one that the node has
// already. An error comes before anything was answered.
func (a *Agents) Open(w http.ResponseWriter, req *http.Request, who user.Info) error {
	t, err := a.asked(req, who)
	if err != nil {
		return err
	}
	if err := a.room(t); err != nil {
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
	t.pods.TLSClientConfig, t.pods.MaxIdleConns = a.direct.TLSClientConfig, stream.TunnelStreams/8 // the others are for who needs them now
	t.pods.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return a.Dial(ctx, t.node, addr) }
	t.expiry = time.AfterFunc(time.Until(t.cert.NotAfter), func() { _ = t.conn.Close() })
	old, err := a.put(t)
	if err != nil {
		t.close()
		return nil //nolint:nilerr // it came too late, and its connection is gone
	}
	if old != nil {
		old.close()
	}
	a.Log.InfoContext(req.Context(), "a node has opened a tunnel", "node", t.node, "from", conn.RemoteAddr().String(), "translated", t.translated)
	t.conn.SetStateHook(func(c *http.ClientConn) {
		if err := c.Err(); err != nil && a.drop(t) {
			t.close()
			a.Log.Info("the tunnel of a node has ended", "node", t.node)
		}
	})
	return nil
}

// asked is the tunnel that a request asks for, if it may. Only the certificate of a node opens one, and only its own: neither
// tokens nor those who speak for others do. TLS lets any certificate through, so that the one of the connection counts only when
// its chain is verified, here and now, and when it is what the request was authenticated by.
func (a *Agents) asked(req *http.Request, who user.Info) (*tunnel, error) {
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
	if err != nil || isAgent(cert, node) != nil || !isSameUser(holder, who) {
		return nil, no("a tunnel is opened with the certificate of its node")
	}
	if req.Method != http.MethodPost || req.ProtoMajor != 1 || req.Header.Get("Upgrade") != stream.TunnelProtocol || !strings.EqualFold(req.Header.Get("Connection"), "upgrade") {
		return nil, apierrors.NewBadRequest("a tunnel is a POST over HTTP/1.1 that asks for an upgrade to " + stream.TunnelProtocol)
	}
	t := &tunnel{node: node, cert: cert, from: req.Header.Get(stream.TunnelFrom), to: req.Host}
	at := req.Header.Get(stream.TunnelAt)
	if t.from == "" || len(t.from) > maxWords || len(at) > maxWords {
		return nil, apierrors.NewBadRequest("the header " + stream.TunnelFrom + " must name the agent, and " + stream.TunnelAt + " its addresses")
	}
	var claimed []netip.Addr
	for text := range strings.SplitSeq(at, ",") {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the header %s must have addresses, and %q is none", stream.TunnelAt, text))
		}
		claimed = append(claimed, ip.Unmap())
	}
	var seen netip.Addr
	if comes, err := netip.ParseAddrPort(req.RemoteAddr); err == nil {
		seen = comes.Addr().Unmap().WithZone("")
	}
	t.own = a.believed(req.Context(), node, claimed, seen)
	t.translated = !slices.Contains(t.own, seen)
	return t, nil
}

// believed are the addresses of a node among those that it claims: the one that the server sees it come from, and those that its
// Node has. A node never has addresses that mean this machine, its link, many machines, or a Service.
func (a *Agents) believed(ctx context.Context, node string, claimed []netip.Addr, seen netip.Addr) (own []netip.Addr) {
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

// isSameUser says that a request was made by the holder of a certificate itself: with that very certificate, and in nobody else's
// name.
func isSameUser(holder, who user.Info) bool {
	return holder.GetName() == who.GetName() && holder.GetUID() == who.GetUID() && slices.Equal(holder.GetGroups(), who.GetGroups()) &&
		slices.Equal(holder.GetExtra()[user.CredentialIDKey], who.GetExtra()[user.CredentialIDKey])
}

// isSameAgent says that two tunnels were opened by the same agent: with the same certificate, or, since certificates are renewed,
// by the same process, whose random name only it and the server know.
func (t *tunnel) isSameAgent(o *tunnel) bool {
	return t.cert.Equal(o.cert) || subtle.ConstantTimeCompare([]byte(t.from), []byte(o.from)) == 1
}

// begin answers the request, and from then on asks.
func (t *tunnel) begin(ctx context.Context, conn net.Conn, early *bufio.ReadWriter) error {
	if early.Reader.Buffered() > 0 {
		return errors.New("the agent speaks before it is asked")
	}
	if err := conn.SetDeadline(time.Now().Add(opening)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+stream.TunnelProtocol+"\r\n\r\n"); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // it is encrypted already
	by := &http.Transport{
		Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
		// The type is hidden: it would be taken for a connection that has yet to be encrypted.
		DialContext: func(context.Context, string, string) (net.Conn, error) { return struct{ net.Conn }{conn}, nil },
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: stream.TunnelBuffer, MaxReceiveBufferPerConnection: stream.TunnelBuffer * stream.TunnelStreams,
			// Agents ask whether the server is there, twice as often; this is for those that have gone without a word.
			SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
	}
	var err error
	t.conn, err = by.NewClientConn(ctx, "http", "node:1") // it is not dialed
	return err
}

// close ends a tunnel that is no longer among those that are open, with everything that goes through it.
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
	ctx, stop := context.WithTimeout(ctx, opening)
	defer stop()
	late := context.AfterFunc(ctx, end)
	out, in := io.Pipe()
	req := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Scheme: "http", Host: addr}, Host: addr, Header: http.Header{}, Body: out, ContentLength: -1,
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
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxWords))
		_ = resp.Body.Close()
		end()
		_ = in.Close()
		return nil, fmt.Errorf("connect to %s through the tunnel of node %s: %s", addr, t.node, strings.TrimSpace(string(text)))
	}
	return &passage{in: in, out: resp.Body, end: end, to: addr}, nil
}
