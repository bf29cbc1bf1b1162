package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server/apistatus"
	"proa.dev/server/encode"
	"proa.dev/server/negotiate"
	"proa.dev/server/responsewriter"
	"proa.dev/server/state"
)

// writeError answers a request with the Status of an error.
func (s *Handler) writeError(w http.ResponseWriter, req *http.Request, err error) {
	if errors.Is(err, context.Canceled) && req.Context().Err() != nil {
		return // the client has gone
	}
	st := apistatus.Of(err)
	if rec, ok := w.(*responsewriter.Writer); ok {
		rec.Terminated = apistatus.IsBusy(st)
		encode.AuditStatus(rec.Audit, s.Server.State.Codec, st)
		rec.Seat.Free()
		if !s.leaseErrorAnswer(rec) {
			return
		}
	}
	if st.Code >= 500 {
		s.Server.Log.Warn("request failed", "method", req.Method, "path", req.URL.Path, "code", st.Code, "err", apistatus.ForLog(err))
	}
	f, nerr := negotiate.Format(req, false, false, false)
	if nerr != nil {
		f = encode.Format{Media: codec.JSON, Pretty: negotiate.WantsPretty(req)}
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	var buf bytes.Buffer
	e := &encode.Encoder{Codec: s.Server.State.Codec, Format: f}
	if err := e.Raw(&buf, st); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// An error may quote the request and be as large.
	if rec, ok := w.(*responsewriter.Writer); ok && buf.Len() > responsewriter.MinRequestMemory && !rec.Memory.Force(int64(buf.Len())) {
		rec.SendError = http.ErrAbortHandler
		return
	}
	responsewriter.Send(w, req, int(st.Code), f.Media.ContentType(), buf.Bytes())
}

// authenticationError returns the error for a client that could not be authenticated: 401, or 503 when the store does
// not answer.
func authenticationError(err error) error {
	if errors.Is(err, state.ErrAccountsUnavailable) {
		return apistatus.Unavailable("the store is not available, and so it cannot be told whether the token is good; try again")
	}
	return apierrors.NewUnauthorized("Unauthorized")
}

// notServed answers a request for a resource that is not served with 404, or with 403 when the user may not make it.
func (s *Handler) notServed(w *responsewriter.Writer, req *http.Request, rt route, who user.Info) {
	a := rt.attributes(who)
	if err := s.Server.AuthorizeAttributes(req.Context(), &a, w.Audit); err != nil {
		s.writeError(w, req, err)
		return
	}
	if rt.gvr.Group != "" && s.groupDiscovery(s.Server.State.Defs(), rt.gvr.Group) == nil {
		s.Paths.ServeHTTP(w, req) // as upstream answers for unknown groups
		return
	}
	s.writeError(w, req, apistatus.NoSuchResource())
}
