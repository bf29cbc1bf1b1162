package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// caller calls the webhooks of one sort.
type caller struct {
	Config
	sort string // as metrics call it: admit or validating
}

// call asks a webhook about a write. The error is a *callError when the webhook did not answer as it should, or a refusal of the write.
func (c *caller) call(ctx context.Context, r *request, h *hook, v *versioned) (*admissionv1.AdmissionResponse, error) {
	if r.DryRun {
		if h.effects == nil {
			return nil, &callError{hook: h.name, reason: errors.New("Webhook SideEffects is nil"), code: http.StatusBadRequest} //nolint:staticcheck // clients know the text so
		}
		if *h.effects != admissionregv1.SideEffectClassNone && *h.effects != admissionregv1.SideEffectClassNoneOnDryRun {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
		}
	}
	q, err := r.ask(h, v)
	if err != nil {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("could not create admission objects: %w", err), code: http.StatusBadRequest}
	}
	client, at, err := c.Clients.Client(&h.endpoint)
	if err != nil {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("could not get REST client: %w", err), code: http.StatusInternalServerError}
	}
	if h.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.timeout)
		defer cancel()
	}
	body, err := post(ctx, client, at, q.body)
	if err != nil {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("failed to call webhook: %w", err), code: codeOf(err), quotes: quotes(err)}
	}
	answer, err := decide(body, q, c.sort == admitting)
	if _, readable := errors.AsType[*invalidError](err); readable {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("received invalid webhook response: %w", err), code: http.StatusServiceUnavailable, quotes: true}
	}
	if err != nil {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("failed to call webhook: %w", err), code: http.StatusServiceUnavailable, quotes: true}
	}
	return answer, nil
}

// callError is the failure to get a usable answer of a webhook. What it means for the write is the webhook's failurePolicy.
type callError struct {
	hook   string
	reason error
	code   int
	quotes bool // the reason repeats what the webhook has answered
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.hook, e.reason)
}

// Unwrap returns the reason.
func (e *callError) Unwrap() error { return e.reason }

// logged is the failure as logs may have it: an answer may repeat what was asked, a Secret for example.
func (e *callError) logged() string {
	if e.quotes {
		return fmt.Sprintf("it answered with an error or something unexpected, code %d", e.code)
	}
	return e.reason.Error()
}

// codeOf is the code of a failed call, for metrics.
func codeOf(err error) int {
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return int(s.ErrStatus.Code)
	}
	return http.StatusServiceUnavailable
}

// quotes reports whether an error is what a webhook has answered, or may repeat a part of it.
func quotes(err error) bool {
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return true
	}
	_, ok := errors.AsType[*answeredError](err)
	return ok
}

// answeredError is an error about an answer that has begun. Those of the HTTP client quote what they do not understand.
type answeredError struct{ error }

func (e *answeredError) Unwrap() error { return e.error }

// send sends a request. An error that comes after the beginning of an answer is an answeredError, unless the time was over.
func send(client *http.Client, req *http.Request) (*http.Response, error) {
	var began atomic.Bool
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { began.Store(true) }}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil && began.Load() && req.Context().Err() == nil {
		return nil, &answeredError{err}
	}
	return resp, err
}

// post sends a review and returns the body of the answer.
func post(ctx context.Context, client *http.Client, at *url.URL, review []byte) ([]byte, error) {
	to := *at
	to.Path, to.RawPath = path.Join("/", to.Path), ""
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			whole := (left + time.Second - 1).Truncate(time.Second)
			to.RawQuery = url.Values{"timeout": {whole.String()}}.Encode()
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	req.Header.Set("User-Agent", "proa")
	// A review may be sent again over another connection if the one that was kept is gone; the header is not sent.
	req.Header["Idempotency-Key"] = nil
	resp, err := send(client, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		err = fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w", err)
		if ctx.Err() == nil {
			err = &answeredError{err}
		}
		return nil, err
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode > http.StatusPartialContent {
		return nil, failed(resp, body)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if len(body) == 0 {
		return nil, &answeredError{fmt.Errorf("0-length response with status code: %d and content type: %s", resp.StatusCode, cut(resp.Header.Get("Content-Type"), 256))}
	}
	return body, nil
}

// failed is the error of an answer that is no success: the Status in it, or its text.
func failed(resp *http.Response, body []byte) error {
	var st metav1.Status
	if json.Unmarshal(body, &st) == nil && st.Kind == "Status" && st.Status == metav1.StatusFailure {
		st.Message = cut(st.Message, maxMessage)
		return &apierrors.StatusError{ErrStatus: st}
	}
	const most = 2048
	message := "unknown"
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.Header.Get("Content-Type") == "" || err == nil && strings.HasPrefix(media, "text/") {
		message = strings.TrimSpace(string(body[:min(len(body), most)]))
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, http.MethodPost, schema.GroupResource{}, "", message, 0, true)
}
