package responsewriter

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// Send sends an answer, compressed when it is large and the client accepts gzip.
func Send(w http.ResponseWriter, req *http.Request, code int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if len(body) < PieceSize || !AcceptsGzip(req) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(code)
		_, _ = w.Write(body) // a client that has gone needs no error
		return
	}
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z := GzipWriters.Get().(*gzip.Writer)
	defer GzipWriters.Put(z)
	z.Reset(w)
	_, _ = z.Write(body)
	_ = z.Close()
}

// GzipWriters is a pool of *gzip.Writer: a new one costs more than most answers.
var GzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is a valid one
	return z
}}

// AcceptsGzip says that the client accepts a compressed answer.
func AcceptsGzip(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept-Encoding"), "gzip")
}
