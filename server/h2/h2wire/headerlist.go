package h2wire

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

// HeaderList is a decoded field block: the header of a request, or its trailer.
type HeaderList struct {
	method, scheme, authority, path string
	Pseudos                         int // which of the pseudo-header fields were there, one bit each
	Header                          http.Header
	values                          []string // storage for the values of the header, one each
	cookies                         []string // the pieces of the cookie field
	Length                          int64    // the Content-Length; -1 when there is none
	Cost                            int      // what it counts in the memory of its connection
	remaining                       int      // how many bytes may still be added
	TooLarge                        bool     // the list is larger than allowed
	Problem                         string   // why the list is malformed; empty if it is not
}

const (
	// RequestCost is what a request counts in the memory of its connection, in addition to the bytes of its header.
	RequestCost = 2 << 10
	// headerFieldCost is what a header field counts in addition to its bytes: its entry in the header map.
	headerFieldCost = 64
	// fieldOverhead is what a field counts in addition to its bytes, by the definition of
	// SETTINGS_MAX_HEADER_LIST_SIZE.
	fieldOverhead = 32
	// MaxCookies is the number of pieces that a client may cut its cookies into.
	MaxCookies = 256
	// maxTrailers is the number of trailer fields that a request may announce.
	maxTrailers = 64
)

// NewHeaderList returns an empty list with room for so many bytes.
func NewHeaderList(room int) *HeaderList {
	return &HeaderList{Header: make(http.Header, 8), values: make([]string, 0, 8), Length: -1, remaining: room, Cost: RequestCost}
}

// NameCache maps field names to their canonical form in Go, so that a connection works out each of them once.
type NameCache map[string]string

// maxCachedNames and maxCachedNameLength limit what a client can make a connection remember.
const (
	maxCachedNames      = 128
	maxCachedNameLength = 64
)

func (n NameCache) canonical(field string) string {
	if known, ok := n[field]; ok {
		return known
	}
	canonical := textproto.CanonicalMIMEHeaderKey(field)
	if len(n) < maxCachedNames && len(field) <= maxCachedNameLength {
		n[field] = canonical
	}
	return canonical
}

// Add adds a field. An invalid field is recorded as Problem rather than returned, because the rest of the block must be
// decoded all the same.
func (h *HeaderList) Add(f hpack.HeaderField, known NameCache) {
	if h.TooLarge {
		return
	}
	if h.remaining -= len(f.Name) + len(f.Value) + fieldOverhead; h.remaining < 0 {
		h.markTooLarge()
		return
	}
	h.Cost += len(f.Name) + len(f.Value) + headerFieldCost
	switch {
	case h.Problem != "":
	case f.IsPseudo():
		h.addPseudo(f)
	case !isValidName(f.Name):
		h.Problem = "a field name is not valid"
	case !httpguts.ValidHeaderFieldValue(f.Value):
		h.Problem = "the value of a field is not valid"
	default:
		h.addRegular(f, known)
	}
}

// markTooLarge records that the list is too large, and drops what was read of it.
func (h *HeaderList) markTooLarge() {
	h.TooLarge, h.Header, h.values, h.cookies, h.Cost = true, http.Header{}, nil, nil, RequestCost
}

// isValidName reports whether name is a field name in lower case.
func isValidName(name string) bool {
	for i := range len(name) {
		if b := name[i]; 'A' <= b && b <= 'Z' || !httpguts.IsTokenRune(rune(b)) {
			return false
		}
	}
	return name != ""
}

func (h *HeaderList) addPseudo(f hpack.HeaderField) {
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
	if field == nil || h.Pseudos&bit != 0 || len(h.Header) > 0 || !httpguts.ValidHeaderFieldValue(f.Value) {
		h.Problem = "the pseudo fields are not those of a request"
		return
	}
	*field = f.Value
	h.Pseudos |= bit
}

func (h *HeaderList) addRegular(f hpack.HeaderField, known NameCache) {
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		h.Problem = "a field is about a connection of HTTP/1"
		return
	case "te":
		if f.Value != "trailers" {
			h.Problem = "te says more than trailers"
			return
		}
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || h.Length >= 0 && h.Length != int64(n) {
			h.Problem = "the content-length is none"
			return
		}
		h.Length = int64(n)
	case "cookie":
		// Cookies may be cut into pieces for better compression. They are joined once, when all are here.
		if h.cookies = append(h.cookies, f.Value); len(h.cookies) > MaxCookies {
			h.markTooLarge()
			return
		}
		if len(h.cookies) > 1 {
			return
		}
	}
	key := known.canonical(f.Name)
	if had, ok := h.Header[key]; ok {
		h.Header[key] = append(had, f.Value)
		return
	}
	h.values = append(h.values, f.Value)
	last := len(h.values)
	h.Header[key] = h.values[last-1 : last : last]
}

// Request returns the request that the header list describes, without its body.
func (h *HeaderList) Request(ctx context.Context, remote string, secured *tls.ConnectionState) (*http.Request, error) {
	if h.Problem != "" {
		return nil, errors.New(h.Problem)
	}
	if host := h.Header["Host"]; len(host) > 0 {
		if h.authority == "" {
			h.authority = host[0]
		}
		if len(host) > 1 || !strings.EqualFold(host[0], h.authority) {
			return nil, errors.New("the host field names another host than the authority") // or a proxy and a handler may disagree
		}
	}
	if len(h.cookies) > 1 {
		h.Header["Cookie"][0] = strings.Join(h.cookies, "; ")
	}
	delete(h.Header, "Host")
	r := &http.Request{
		Method: h.method, Proto: "HTTP/2.0", ProtoMajor: 2, Header: h.Header, Host: h.authority,
		ContentLength: h.Length, RemoteAddr: remote, TLS: secured, RequestURI: h.path,
	}
	if err := h.setTarget(r); err != nil {
		return nil, err
	}
	if !httpguts.ValidHostHeader(h.authority) {
		return nil, errors.New("the authority is not valid")
	}
	for name := range TrailerNames(h.Header) {
		if r.Trailer == nil {
			r.Trailer = http.Header{}
		}
		if r.Trailer[name] = nil; len(r.Trailer) > maxTrailers {
			return nil, errors.New("the request announces too many fields after its body")
		}
	}
	delete(h.Header, "Trailer")
	return r.WithContext(ctx), nil
}

// TrailerNames yields the trailer fields that a header announces.
func TrailerNames(h http.Header) iter.Seq[string] {
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

// setTarget sets the URL of the request.
func (h *HeaderList) setTarget(r *http.Request) (err error) {
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
