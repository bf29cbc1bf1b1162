// Package unreadbody finds the name of the object in the body of a request that is refused before its body is read, because its client
// could not be authenticated (hop 2). The name is for the record of the request only, with which whoever looks for the object finds out
// that the request was refused.
//
// Anybody who reaches the port may send such requests, so that the body is read only where this costs next to nothing: up to MaxSize
// bytes of a length that the client has said, and only what arrives at once. The HTTP/2 server has collected such a body before the request
// is served. The HTTP/1.1 server reads it before it sends an answer, with or without this package; here it is waited for for a fraction
// of a second by a few requests at a time, and others have no name in their records. The connection of a body that did not arrive in time
// is closed after the answer.
package unreadbody

import (
	"cmp"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server/deadline"
	"proa.dev/server/refusal"
)

const (
	// MaxSize is how large a body may be to be read.
	MaxSize = 16 << 10
	// maxReaders is how many bodies are waited for at a time.
	maxReaders = 8
	// DefaultPatience is the default of Reader.Patience.
	DefaultPatience = 50 * time.Millisecond
)

// Reader reads the bodies of refused requests. The zero value is ready for use.
type Reader struct {
	// Patience is how long a body is waited for; 0 for DefaultPatience.
	Patience time.Duration
	reading  atomic.Int32
}

// ObjectName returns the name of the object in the body of a request, or nothing if that is not to be had at once. The name is what the
// client says, and valid as a name. The request must not be read by anybody else.
func (r *Reader) ObjectName(w http.ResponseWriter, req *http.Request) string {
	contentType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil && req.Header.Get("Content-Type") != "" {
		return ""
	}
	media, known := codec.MediaOf(contentType)
	if !known || req.ContentLength <= 0 || req.ContentLength > MaxSize || req.Header.Get("Expect") != "" {
		return "" // a client that expects to be told to continue has not sent the body, and need not
	}
	return refusal.ObjectName(r.read(w, req), media)
}

// read returns the body of a request; nil if it does not arrive soon.
func (r *Reader) read(w http.ResponseWriter, req *http.Request) []byte {
	if b, ok := req.Body.(interface{ Whole() ([]byte, bool) }); ok {
		whole, _ := b.Whole()
		return whole
	}
	defer r.reading.Add(-1)
	if r.reading.Add(1) > maxReaders {
		return nil
	}
	finish, isLimited := deadline.LimitBody(w, req, time.Now().Add(cmp.Or(r.Patience, DefaultPatience)))
	if !isLimited {
		return nil // it could take forever
	}
	body := make([]byte, req.ContentLength)
	_, err := io.ReadFull(req.Body, body)
	finish(err)
	if err != nil {
		return nil
	}
	return body
}
