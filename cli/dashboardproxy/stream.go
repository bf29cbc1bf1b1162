package dashboardproxy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

const (
	// streamProtocol is the subprotocol of a WebSocket that carries the answer to a GET: one text message with the status, then the
	// body in binary messages. Browsers open at most six connections to an HTTP/1.1 server, and a page with as many watches and logs
	// would wait forever for a seventh request; WebSockets do not count.
	streamProtocol = "stream.dashboard.proa.dev"
	// acceptProtocolPrefix precedes the Accept header of the request, in base64url.
	acceptProtocolPrefix = "accept.dashboard.proa.dev."
	// sendTimeout is how long a browser may take to read one message.
	sendTimeout = 30 * time.Second
	// maxRefusal bounds how much of an error is passed on.
	maxRefusal = 64 << 10
)

// streamHead is the first message of a stream.
type streamHead struct {
	Code int    `json:"code"`
	Body string `json:"body,omitempty"` // the error, when Code is not 200
}

// serveStream makes a GET for a WebSocket.
func (p *Proxy) serveStream(w http.ResponseWriter, req *http.Request) {
	accept, ok := acceptOf(req.Header)
	if !ok {
		refuse(w, http.StatusBadRequest, "the subprotocol "+acceptProtocolPrefix+" is not base64url")
		return
	}
	websocket.Server{
		Handler: func(ws *websocket.Conn) {
			defer func() { _ = ws.Close() }() // the browser may have gone
			ctx, stop := context.WithCancel(req.Context())
			defer stop()
			go func() { // it ends with the connection, which is closed when this handler returns
				defer stop()
				_, _ = io.Copy(io.Discard, ws)
			}()
			p.copyAnswer(ctx, ws, req, accept)
		},
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = []string{streamProtocol}
			return nil
		},
	}.ServeHTTP(w, req)
}

// acceptOf returns the Accept header among the subprotocols.
func acceptOf(head http.Header) (string, bool) {
	protocols := protocolsOf(head)
	i := slices.IndexFunc(protocols, func(s string) bool { return strings.HasPrefix(s, acceptProtocolPrefix) })
	if i < 0 {
		return "*/*", true
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(protocols[i], acceptProtocolPrefix))
	if err != nil || strings.ContainsFunc(string(data), func(c rune) bool { return c < 0x20 || c > 0x7e }) {
		return "", false
	}
	return string(data), true
}

// copyAnswer asks the API server and sends what it answers.
func (p *Proxy) copyAnswer(ctx context.Context, ws *websocket.Conn, req *http.Request, accept string) {
	send := func(data []byte, payload byte) error {
		ws.PayloadType = payload
		if err := ws.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return err
		}
		_, err := ws.Write(data)
		return err
	}
	sendHead := func(h streamHead) error {
		data, err := json.Marshal(h)
		if err != nil {
			return err
		}
		return send(data, websocket.TextFrame)
	}
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.config.Address+req.URL.RequestURI(), nil)
	if err != nil {
		_ = sendHead(streamHead{Code: http.StatusBadRequest, Body: err.Error()})
		return
	}
	get.Header.Set("Accept", accept)
	get.Header.Set("User-Agent", req.UserAgent())
	resp, err := p.config.Cluster.RoundTrip(get)
	if err != nil {
		_ = sendHead(streamHead{Code: http.StatusBadGateway, Body: "the API server does not answer: " + err.Error()})
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what has come of it
		_ = sendHead(streamHead{Code: resp.StatusCode, Body: string(body)})
		return
	}
	if sendHead(streamHead{Code: http.StatusOK}) != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 && send(buf[:n], websocket.BinaryFrame) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}
