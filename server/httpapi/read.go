package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/deadline"
	"proa.dev/server/negotiate"
	"proa.dev/server/responsewriter"
)

// maxBody is how many bytes the body of a request may have.
const maxBody = 3 << 20

// readRequest reads the query and the body of a request.
func (s *Handler) readRequest(ctx context.Context, w *responsewriter.Writer, req *http.Request, r *server.Request) error {
	q := req.URL.Query()
	if r.Verb == "get" {
		r.Options.List.ResourceVersion = q.Get("resourceVersion")
		return nil
	}
	contentType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if req.Header.Get("Content-Type") == "" {
		contentType, err = "", nil
	}
	if err != nil && r.Verb != "list" && r.Verb != "watch" && r.Verb != "patch" {
		return negotiate.UnsupportedMedia(negotiate.AcceptedMediaTypes)
	}
	if r.Verb == "patch" {
		r.Patch = types.PatchType(contentType)
		switch {
		case r.Patch == types.StrategicMergePatchType && r.Def.JSONOnly:
			return negotiate.UnsupportedMedia(strings.Join([]string{string(types.JSONPatchType), string(types.MergePatchType),
				string(types.ApplyPatchType)}, ", "))
		case slices.Contains([]types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType,
			types.ApplyPatchType}, r.Patch):
		default:
			return apistatus.Refused(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
				"415: Unsupported Media Type")
		}
	}
	if err := parseOptions(r, q, s.NoWatchList); err != nil {
		return err
	}
	if r.Verb == "list" || r.Verb == "watch" {
		return nil
	}
	if err := s.leaseBody(ctx, w, r, req.ContentLength); err != nil {
		return err
	}
	body, err := readBody(ctx, w, req)
	if _, tooBig := errors.AsType[*http.MaxBytesError](err); tooBig {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if err != nil {
		return apistatus.BadRequest("unable to read the body: %v", err)
	}
	r.Body = body
	w.BodyMemory[0].Shrink(int64(len(body)))
	if err := s.leaseDecoding(ctx, w, r, contentType); err != nil {
		return err
	}
	if r.Verb == "patch" {
		r.Media = codec.JSON
		return nil
	}
	if r.Verb == "delete" || r.Verb == "deletecollection" {
		return s.readDeleteOptions(r, q, contentType)
	}
	var known bool
	if r.Media, known = codec.MediaOf(contentType); !known {
		return negotiate.UnsupportedMedia(negotiate.AcceptedMediaTypes)
	}
	return nil
}

// readBody reads the body of a request. The HTTP/2 server may have received a small one as a whole already; otherwise
// it must arrive before the deadline of the request.
func readBody(ctx context.Context, w http.ResponseWriter, req *http.Request) ([]byte, error) {
	if b, ok := req.Body.(interface{ Whole() ([]byte, bool) }); ok {
		if p, ok := b.Whole(); ok && len(p) <= maxBody {
			return p, nil
		}
	}
	finish := func(error) {}
	if at, ends := ctx.Deadline(); ends && req.Body != http.NoBody {
		finish, _ = deadline.LimitBody(w, req, at)
	}
	body, err := readSized(http.MaxBytesReader(w, req.Body, maxBody), req.ContentLength)
	finish(err)
	return body, err
}

// readSized reads a body into a buffer of its length, with one byte more, so that the end is seen without growing it.
// For a length that is not given or too large the buffer starts small.
func readSized(body io.Reader, length int64) ([]byte, error) {
	if length < 0 || length > maxBody {
		return io.ReadAll(body)
	}
	out := make([]byte, 0, length+1)
	for {
		n, err := body.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(out) == cap(out) { // it is longer than announced
			out = append(out, 0)[:len(out)]
		}
	}
}

// readDeleteOptions reads DeleteOptions from the body, or from the query when there is none.
func (s *Handler) readDeleteOptions(r *server.Request, q url.Values, contentType string) error {
	o := &metav1.DeleteOptions{}
	if len(r.Body) > 0 {
		m, known := codec.MediaOf(contentType)
		if !known {
			return negotiate.UnsupportedMedia(negotiate.AcceptedMediaTypes)
		}
		gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		if err := s.Server.State.Codec.DecodeOptions(r.Body, m, gvk, o); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	} else if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&q, o, nil); err != nil {
		return apistatus.BadRequest("%v", err)
	}
	r.Options.Delete = o
	r.Options.DryRun = len(o.DryRun) > 0
	return nil
}
