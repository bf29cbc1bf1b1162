package httpproxy

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxMirrored bounds the copies that are in flight; further ones are left out.
	maxMirrored = 256
	// maxMirroredBody is the largest body that is copied.
	maxMirroredBody = 64 << 10
	mirrorTimeout   = 10 * time.Second
)

// mirror prepares the copies of a request. The caller calls send after the request itself, when its body is known.
func (p *Proxy) mirror(x *exchange, in *http.Request) (send func()) {
	var chosen []*Pool
	for i, m := range x.route.Mirrors {
		if pool := x.route.mirrors[i]; pool != nil &&
			rand.IntN(max(m.Denominator, 1)) < m.Numerator { //nolint:gosec // G404: it spreads load, and is no secret
			chosen = append(chosen, pool)
		}
	}
	if len(chosen) == 0 {
		return func() {}
	}
	header, body := in.Header.Clone(), &recording{}
	if in.Body != nil && in.Body != http.NoBody {
		in.Body = &recorded{in.Body, body}
	}
	return func() {
		text, whole := body.taken()
		if !whole {
			return
		}
		for _, pool := range chosen {
			select {
			case p.copies <- struct{}{}:
			default:
				continue // too many copies are in flight
			}
			r := in.Clone(context.WithoutCancel(in.Context()))
			r.Header, r.Trailer = header.Clone(), nil
			go func() {
				defer func() { <-p.copies }()
				sendCopy(x, pool, r, text)
			}()
		}
	}
}

// sendCopy sends a copy of a request and discards the response.
func sendCopy(x *exchange, pool *Pool, r *http.Request, body []byte) {
	ctx, stop := context.WithTimeout(r.Context(), mirrorTimeout)
	defer stop()
	e := pool.take(x.client, nil)
	if e == nil {
		return
	}
	defer e.release()
	r = r.WithContext(ctx)
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", e.addr
	if pool.ref.Protocol == HTTPS {
		r.URL.Scheme = "https"
	}
	dropHops(r.Header)
	x.setForwarded(r.Header, r)
	x.route.Request.apply(r.Header)
	r.Body, r.ContentLength = http.NoBody, 0
	if len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	answer, err := e.transport.RoundTrip(r)
	if err != nil {
		x.log.DebugContext(ctx, "a copy of a request could not be sent", "rule", x.route.Owner.String(), "backend", pool.ref.String(),
			"err", err)
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxMirroredBody))
	_ = answer.Body.Close()
}

// dropHops removes the hop-by-hop headers.
func dropHops(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Upgrade", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Proxy-Connection",
		"Proxy-Authorization", "Proxy-Authenticate"} {
		h.Del(name)
	}
}

// recording holds what was read of a body. A transport may read on after the request is finished.
type recording struct {
	mu   sync.Mutex // guards what follows
	body bytes.Buffer
	cut  bool // the body is too large to be copied
}

// add records bytes that were read.
func (r *recording) add(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cut:
	case r.body.Len()+len(p) > maxMirroredBody:
		r.cut = true
		r.body.Reset()
	default:
		r.body.Write(p)
	}
}

// taken returns a copy of the body; false if the body was too large or not read completely.
func (r *recording) taken() ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.body.Bytes()), !r.cut
}

type recorded struct {
	io.ReadCloser
	to *recording
}

func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.to.add(p[:n])
	return n, err
}
