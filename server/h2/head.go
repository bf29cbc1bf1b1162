package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// head is what a block of fields says: the head of a request, or its trailer.
type head struct {
	method, scheme, authority, path string
	pseudos                         int // which of these there are, a bit each
	header                          http.Header
	values                          []string // room for the values of the header, one each
	cookies                         []string // the pieces of the cookie field
	length                          int64    // of the body; -1 when it is not said
	cost                            int      // what it counts in the memory of its connection
	room                            int      // how much larger the list may get
	wide                            bool     // the list is too large
	bad                             string   // what is wrong with it
}

const (
	// fieldCost is what a field counts beside its bytes, as the setting for the size of lists says.
	fieldCost = 32
	// mostCookies bounds the pieces that a client may cut its cookies into.
	mostCookies = 256
	// mostTrailers bounds the fields that a request may announce to follow its body.
	mostTrailers = 64
)

func newHead(room int) *head {
	return &head{header: make(http.Header, 8), values: make([]string, 0, 8), length: -1, room: room, cost: streamCost}
}

// names are the forms in which a connection's fields are known to Go, so that each is worked out once.
type names map[string]string

// mostNames and longestName bound what a client can make a connection remember.
const (
	mostNames   = 128
	longestName = 64
)

func (n names) of(field string) string {
	if known, ok := n[field]; ok {
		return known
	}
	canonical := textproto.CanonicalMIMEHeaderKey(field)
	if len(n) < mostNames && len(field) <= longestName {
		n[field] = canonical
	}
	return canonical
}

// add takes one more field. What is wrong with it is remembered, because the rest of the block must be read all the same.
func (h *head) add(f hpack.HeaderField, known names) {
	if h.wide {
		return
	}
	if h.room -= len(f.Name) + len(f.Value) + fieldCost; h.room < 0 {
		h.widen()
		return
	}
	h.cost += len(f.Name) + len(f.Value) + headerFieldCost
	switch {
	case h.bad != "":
	case f.IsPseudo():
		h.pseudo(f)
	case !sound(f.Name):
		h.bad = "a field name is not valid"
	case !httpguts.ValidHeaderFieldValue(f.Value):
		h.bad = "the value of a field is not valid"
	default:
		h.regular(f, known)
	}
}

// widen says that the list is too large. What has been read of it is let go.
func (h *head) widen() {
	h.wide, h.header, h.values, h.cookies, h.cost = true, http.Header{}, nil, nil, streamCost
}

// sound tells whether a name is one, in lower case.
func sound(name string) bool {
	for i := range len(name) {
		if b := name[i]; 'A' <= b && b <= 'Z' || !httpguts.IsTokenRune(rune(b)) {
			return false
		}
	}
	return name != ""
}

func (h *head) pseudo(f hpack.HeaderField) {
	field, bit := (*string)(nil), 0
	switch f.Name {
	case ":method":
		field, bit = &h.method, 1
	case ":scheme":
		field, bit = &h.scheme, 2
	case ":authority":
		field, bit = &h.authority, 4
	case ":path":
		field, bit = &h.path, 8
	}
	if field == nil || h.pseudos&bit != 0 || len(h.header) > 0 || !httpguts.ValidHeaderFieldValue(f.Value) {
		h.bad = "the pseudo fields are not those of a request"
		return
	}
	*field = f.Value
	h.pseudos |= bit
}

func (h *head) regular(f hpack.HeaderField, known names) {
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		h.bad = "a field is about a connection of HTTP/1"
		return
	case "te":
		if f.Value != "trailers" {
			h.bad = "te says more than trailers"
			return
		}
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			h.bad = "the content-length is none"
			return
		}
		h.length = int64(n)
	case "cookie":
		// Cookies may be cut into pieces for the sake of compression. They are put together once, when all are here.
		if h.cookies = append(h.cookies, f.Value); len(h.cookies) > mostCookies {
			h.widen()
			return
		}
		if len(h.cookies) > 1 {
			return
		}
	}
	key := known.of(f.Name)
	if had, ok := h.header[key]; ok {
		h.header[key] = append(had, f.Value)
		return
	}
	h.values = append(h.values, f.Value)
	last := len(h.values)
	h.header[key] = h.values[last-1 : last : last]
}

// request makes the request that the head asks for, without its body.
func (h *head) request(ctx context.Context, remote string, secured *tls.ConnectionState) (*http.Request, error) {
	if h.bad != "" {
		return nil, errors.New(h.bad)
	}
	if host := h.header["Host"]; len(host) > 0 {
		if h.authority == "" {
			h.authority = host[0]
		}
		if len(host) > 1 || !strings.EqualFold(host[0], h.authority) {
			return nil, errors.New("the host field names another host than the authority") // or a proxy and a handler may disagree
		}
	}
	if len(h.cookies) > 1 {
		h.header["Cookie"][0] = strings.Join(h.cookies, "; ")
	}
	delete(h.header, "Host")
	r := &http.Request{
		Method: h.method, Proto: "HTTP/2.0", ProtoMajor: 2, Header: h.header, Host: h.authority,
		ContentLength: h.length, RemoteAddr: remote, TLS: secured, RequestURI: h.path,
	}
	if err := h.target(r); err != nil {
		return nil, err
	}
	if !httpguts.ValidHostHeader(h.authority) {
		return nil, errors.New("the authority is not valid")
	}
	for name := range announced(h.header) {
		if r.Trailer == nil {
			r.Trailer = http.Header{}
		}
		if r.Trailer[name] = nil; len(r.Trailer) > mostTrailers {
			return nil, errors.New("the request announces too many fields after its body")
		}
	}
	delete(h.header, "Trailer")
	return r.WithContext(ctx), nil
}

// announced yields the names of the fields that a header says will follow the body.
func announced(h http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range h["Trailer"] {
			for name := range strings.SplitSeq(list, ",") {
				name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
				if httpguts.ValidTrailerHeader(name) && !yield(name) {
					return
				}
			}
		}
	}
}

// target finds out what is asked for.
func (h *head) target(r *http.Request) (err error) {
	if h.method == http.MethodConnect {
		if h.path != "" || h.scheme != "" || h.authority == "" {
			return errors.New("CONNECT names an authority, and nothing else")
		}
		r.URL, r.RequestURI = &url.URL{Host: h.authority}, h.authority
		return nil
	}
	if h.method == "" || h.path == "" || h.scheme != "https" && h.scheme != "http" {
		return errors.New("method, scheme and path belong to every request")
	}
	if !httpguts.ValidHeaderFieldName(h.method) {
		return errors.New("the method is not valid")
	}
	if h.path[0] != '/' && h.path != "*" {
		return errors.New("the path does not begin with a slash")
	}
	r.URL, err = url.ParseRequestURI(h.path)
	return err
}
