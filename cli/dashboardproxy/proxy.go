// Package dashboardproxy serves the dashboard on a loopback port and passes the page's requests on to an API server with the
// credentials of a kubeconfig. Whoever can reach the port has these credentials, so it checks who that is: a browser must first send
// a code that only the user can know, and then a cookie and a key with every request. What other pages of the same browser can make
// it send is refused.
package dashboardproxy

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"

	"proa.dev/ui"
)

// Config is what a Proxy is made of.
type Config struct {
	// Address is the address that the proxy listens on: 127.0.0.1 with its port.
	Address string
	// Cluster sends requests to the API server with the credentials of the user.
	Cluster http.RoundTripper
	// Server and Namespace are shown on the page: the address of the API server, and the namespace of the kubeconfig's context.
	Server, Namespace string
	// LoggedIn is called when the code that was last returned by Code was used up; Locked when too many wrong codes were tried.
	LoggedIn, Locked func()
}

// Proxy is the handler of the loopback port.
type Proxy struct {
	config   Config
	host     string // the value of the Host header that it answers to
	other    string // localhost with the same port, from where browsers are sent to host
	files    *ui.Handler
	sessions *sessions
	forward  *httputil.ReverseProxy
}

// New returns a proxy.
func New(c Config) (*Proxy, error) {
	files, err := ui.New(ui.Proxy)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{config: c, host: "127.0.0.1:" + port, other: "localhost:" + port, files: files, sessions: newSessions(port)}
	p.forward = &httputil.ReverseProxy{
		Transport: c.Cluster, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Del("Origin")
			r.Out.Header.Del("Referer")
			r.Out.Header.Del(keyHeader)
			setProtocols(r.Out.Header, withoutKey(protocolsOf(r.Out.Header)))
			r.Out.URL.Scheme, r.Out.URL.Host = "http", c.Address // the transport chooses the server
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"} {
				resp.Header.Del(name)
			}
			protectAnswer(resp.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, "the API server does not answer: "+err.Error())
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return p, nil
}

// protectAnswer keeps an answer with data from being shown as a page, and from being kept.
func protectAnswer(head http.Header) {
	ui.SetSecurityHeaders(head)
	head.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
	head.Set("Cache-Control", "no-store")
}

// Code returns the code that lets the next browser in, for the terminal.
func (p *Proxy) Code() string { return p.sessions.currentCode() }

// The paths of the proxy itself.
const (
	sessionPath = ui.Path + "session"
	enterPath   = ui.Path + "enter"
)

// ServeHTTP checks where a request comes from and passes it on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// A page of another name that resolves to 127.0.0.1 sends its own name (DNS rebinding).
	// The name localhost is also ::1, where another user of the machine may listen on the same port: a key that a browser keeps for the
	// name would be his to read.
	switch {
	case req.Host == p.other && req.Method == http.MethodGet:
		http.Redirect(w, req, p.Address(), http.StatusSeeOther)
	case req.Host != p.host:
		refuse(w, http.StatusMisdirectedRequest, "this proxy answers to its own address only: "+p.Address())
	case req.URL.Path == "/":
		http.Redirect(w, req, ui.Path, http.StatusSeeOther)
	case req.URL.Path == enterPath:
		p.enter(w, req)
	case req.URL.Path == sessionPath:
		p.serveSession(w, req)
	case ui.Owns(req.URL.Path):
		p.files.ServeHTTP(w, req)
	default:
		p.serveAPI(w, req)
	}
}

// serveAPI passes a request on to the API server.
func (p *Proxy) serveAPI(w http.ResponseWriter, req *http.Request) {
	if code, why := p.reasonToRefuse(req); code != 0 {
		refuse(w, code, why)
		return
	}
	if isWebSocket(req) && slices.Contains(protocolsOf(req.Header), streamProtocol) {
		p.serveStream(w, req)
		return
	}
	p.forward.ServeHTTP(w, req)
}

// reasonToRefuse returns why a request is not passed on, or 0.
func (p *Proxy) reasonToRefuse(req *http.Request) (code int, why string) {
	key := req.Header.Get(keyHeader)
	if isWebSocket(req) { // a browser cannot set headers of a WebSocket
		key = keyOfProtocols(req.Header)
	}
	switch {
	case !p.fromOwnPage(req):
		return http.StatusForbidden, "the request comes from another page"
	case key == "":
		return http.StatusForbidden, "the header " + keyHeader + " is missing: only the dashboard may use this proxy"
	case !p.sessions.knows(req, key):
		return http.StatusUnauthorized, "log in with the code that \"proa dashboard\" shows"
	case !isForwarded(req.URL.Path):
		return http.StatusNotFound, "the dashboard does not use this path"
	}
	return 0, ""
}

// fromOwnPage says that a request was not made by a page of another origin. Browsers send Origin with every request that is no GET
// and with every WebSocket, and Sec-Fetch-Site with all.
func (p *Proxy) fromOwnPage(req *http.Request) bool {
	if site := req.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	origin := req.Header.Get("Origin")
	if origin == "" {
		return (req.Method == http.MethodGet || req.Method == http.MethodHead) && !isWebSocket(req)
	}
	return origin == "http://"+p.host
}

// isForwarded says that the page uses a path of the API server. What nodes, Pods and Services serve through the API server is not
// among it: their pages would have the origin of the dashboard.
func isForwarded(urlPath string) bool {
	if path.Clean(urlPath) != strings.TrimSuffix(urlPath, "/") {
		return false
	}
	parts := strings.Split(strings.Trim(urlPath, "/"), "/")
	switch parts[0] {
	case "api":
		return len(parts) < 3 || parts[2] != proxySubresource && !isTunnel(parts[2:]) // /api/v1/proxy is the former form
	case "apis":
		return len(parts) < 4 || !isTunnel(parts[3:])
	case "openapi", "version", "healthz", "livez", "readyz":
		return true
	}
	return false
}

const proxySubresource = "proxy"

// isTunnel says that a path, without its group and version, names a subresource that leads to a node, Pod or Service. Objects and
// namespaces may have the same names.
func isTunnel(parts []string) bool {
	if parts[0] == "watch" { // the former form of watches
		parts = parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return len(parts) > 2 && (parts[2] == proxySubresource || parts[2] == "portforward")
}

// isWebSocket says that a request asks for a WebSocket.
func isWebSocket(req *http.Request) bool {
	return strings.EqualFold(req.Header.Get("Upgrade"), "websocket")
}

const protocolHeader = "Sec-Websocket-Protocol"

// protocolsOf returns the subprotocols that a WebSocket request offers.
func protocolsOf(head http.Header) (out []string) {
	for _, line := range head[protocolHeader] {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" {
				out = append(out, protocol)
			}
		}
	}
	return out
}

func setProtocols(head http.Header, protocols []string) {
	delete(head, protocolHeader)
	if len(protocols) > 0 {
		head.Set(protocolHeader, strings.Join(protocols, ", "))
	}
}

// refuse answers with an error as the API server writes it, so that the page has one way to read errors.
func refuse(w http.ResponseWriter, code int, message string) {
	head := w.Header()
	protectAnswer(head)
	head.Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{ // a client that has gone needs no answer
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "DashboardProxy", "code": code,
	})
}

// Address returns the address of the page.
func (p *Proxy) Address() string {
	return (&url.URL{Scheme: "http", Host: p.host, Path: ui.Path}).String()
}
