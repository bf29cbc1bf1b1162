package httpapi

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/klauspost/compress/gzip"

	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/audit"
	"proa.dev/server/encode"
	"proa.dev/server/responsewriter"
)

// gzipMemory is about how many bytes it takes to compress an answer. When there is not enough memory, the answer is
// sent uncompressed.
const gzipMemory = 512 << 10

// writeAnswer encodes an answer that is no watch, and sends it. The seat of the request is given back when the answer
// is encoded and at most a piece of it is left to be sent. bodies keeps a copy of the answer; nil for none.
func (s *Handler) writeAnswer(w *responsewriter.Writer, req *http.Request, res *server.Response, e *encode.Encoder, bodies *keptBodies) {
	buf := responsewriter.GetBuffer()
	defer responsewriter.PutBuffer(buf)
	if res.List != nil {
		s.writeList(w, req, res, &listAnswer{e: e, buf: buf})
		return
	}
	if err := e.Response(buf, res, nil); err != nil {
		s.writeError(w, req, err)
		return
	}
	if n := int64(buf.Len()); n > responsewriter.PieceSize && !w.Memory.Grow(n) {
		if req.Method == http.MethodGet {
			s.writeError(w, req, apistatus.TooManyRequests())
			return
		}
		if !w.Memory.Force(n) { // the write is done, so the client must not be asked to try again
			panic(http.ErrAbortHandler)
		}
	}
	w.Seat.Free()
	w.Memory.Shrink(responsewriter.MinRequestMemory + int64(buf.Len()))
	encode.AuditResponse(w.Audit, res, e, buf.Bytes())
	bodies.keepAnswer(buf.Bytes(), e.Format.Media.ContentType())
	responsewriter.Send(w, req, res.Code, e.Format.Media.ContentType(), buf.Bytes())
}

// listAnswer is a list that is being sent: items are encoded into a buffer, which is sent whenever it is full. So a
// list takes no more memory than a piece and an item, however long it is.
type listAnswer struct {
	w    *responsewriter.Writer
	req  *http.Request
	res  *server.Response
	e    *encode.Encoder
	buf  *bytes.Buffer
	zip  *gzip.Writer  // nil when the answer is not compressed
	out  *bytes.Buffer // compressed bytes that are not sent yet
	sent bool          // the header and a part of the list have been sent
	copy *bytes.Buffer // for the audit log; nil when it is not wanted or too large
	size int           // of what was sent
}

// writeList encodes and sends a list. An error before anything was sent is answered with a Status; after that the
// answer is aborted, so that the client does not take a part for the whole.
func (s *Handler) writeList(w *responsewriter.Writer, req *http.Request, res *server.Response, l *listAnswer) {
	l.w, l.req, l.res = w, req, res
	wanted := w.Audit != nil && w.Audit.WantsResponse()
	if wanted {
		l.copy = &bytes.Buffer{}
	}
	res.List.SingleUse = !wanted
	err := w.Work.Begin(req.Context())
	if err == nil {
		err = l.e.Response(l.buf, res, l.flushFull)
	}
	w.Work.End()
	w.Seat.Free()
	switch {
	case err != nil && !l.sent:
		s.writeError(w, req, err)
		return
	case err == nil && !l.sent:
		w.Memory.Shrink(responsewriter.MinRequestMemory + int64(l.buf.Len()))
		encode.AuditResponse(w.Audit, res, l.e, l.buf.Bytes())
		responsewriter.Send(w, req, res.Code, l.e.Format.Media.ContentType(), l.buf.Bytes())
		return
	case err == nil:
		err = l.flush()
	}
	if wanted && err == nil {
		s.auditList(w.Audit, l)
	}
	if l.zip != nil {
		err = errors.Join(err, l.finishGzip(err == nil))
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// flushFull sends the buffer if it holds a piece or more.
func (l *listAnswer) flushFull() error {
	if l.buf.Len() < responsewriter.PieceSize {
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.w.Work.Begin(l.req.Context())
}

// flush sends the buffer, after the header if that is not sent yet. The request takes no processor time while the
// client reads.
func (l *listAnswer) flush() error {
	if !l.sent {
		l.sent = true
		l.sendHeader()
	}
	b := l.buf.Bytes()
	l.copyForAudit(b)
	if l.zip != nil {
		if _, err := l.zip.Write(b); err != nil {
			return err
		}
		b = l.out.Bytes()
	}
	l.w.Work.End()
	_, err := l.w.Write(b)
	l.buf.Reset()
	if l.zip != nil {
		l.out.Reset()
	}
	return err
}

// finishGzip gives the compressor back, after sending the rest of the answer if send is set.
func (l *listAnswer) finishGzip(send bool) error {
	defer responsewriter.PutBuffer(l.out)
	defer responsewriter.GzipWriters.Put(l.zip)
	if !send {
		return nil
	}
	if err := l.zip.Close(); err != nil {
		return err
	}
	_, err := l.w.Write(l.out.Bytes())
	return err
}

// sendHeader sends the header of a list that is longer than a piece, without its length.
func (l *listAnswer) sendHeader() {
	h := l.w.Header()
	h.Set("Content-Type", l.e.Format.Media.ContentType())
	if responsewriter.AcceptsGzip(l.req) && l.w.Memory.Grow(gzipMemory) {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		l.zip = responsewriter.GzipWriters.Get().(*gzip.Writer)
		l.out = responsewriter.GetBuffer()
		l.zip.Reset(l.out)
	}
	l.w.WriteHeader(l.res.Code)
}

// copyForAudit keeps a part of the answer for the audit log, up to the size that it takes.
func (l *listAnswer) copyForAudit(b []byte) {
	if l.size += len(b); l.copy == nil {
		return
	}
	if l.size > audit.MaxBodies {
		l.copy = nil
		return
	}
	l.copy.Write(b)
}

// auditList adds a list that was sent in pieces to its audit record.
func (s *Handler) auditList(t *audit.Record, l *listAnswer) {
	if l.copy == nil {
		t.SetTruncated()
		return
	}
	encode.AuditResponse(t, l.res, l.e, l.copy.Bytes())
}
