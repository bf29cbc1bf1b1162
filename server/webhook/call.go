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

// caller calls the webhooks of one type.
type caller struct {
	Config
	webhookType string // as metrics name it: admit or validating
}

// call asks a webhook about a write. The error is a *callError when the webhook did not respond as it should, or a
// denial of the write.
func (c *caller) call(ctx context.Context, r *request, h *hook, v *versioned) (*admissionv1.AdmissionResponse, error) {
	if r.DryRun {
		if h.effects == nil {
			return nil, &callError{hook: h.name, reason: errors.New("Webhook SideEffects is nil"),
				code: http.StatusBadRequest}
		}
		if *h.effects != admissionregv1.SideEffectClassNone && *h.effects != admissionregv1.SideEffectClassNoneOnDryRun {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
		}
	}
	q, err := r.newReview(h, v)
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
		return nil, &callError{hook: h.name, reason: fmt.Errorf("failed to call webhook: %w", err), code: codeOf(err),
			quotes: quotesResponse(err)}
	}
	answer, err := parseResponse(body, q, c.webhookType == admitting)
	if _, readable := errors.AsType[*invalidError](err); readable {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("received invalid webhook response: %w", err),
			code: http.StatusServiceUnavailable, quotes: true}
	}
	if err != nil {
		return nil, &callError{hook: h.name, reason: fmt.Errorf("failed to call webhook: %w", err), code: http.StatusServiceUnavailable,
			quotes: true}
	}
	return answer, nil
}

// callError is the failure to get a valid response of a webhook. The webhook's failurePolicy says what it means for the
// write.
type callError struct {
	hook   string
	reason error
	code   int
	quotes bool // the reason repeats what the webhook has responded
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.hook, e.reason)
}

// Unwrap returns the reason.
func (e *callError) Unwrap() error { return e.reason }

// logged returns the text for logs. It does not repeat a response, because a response may repeat what was sent, for
// example a Secret.
func (e *callError) logged() string {
	if e.quotes {
		return fmt.Sprintf("it answered with an error or something unexpected, code %d", e.code)
	}
	return e.reason.Error()
}

// codeOf returns the status code of a failed call, for metrics.
func codeOf(err error) int {
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return int(s.ErrStatus.Code)
	}
	return http.StatusServiceUnavailable
}

// quotesResponse reports whether an error is what a webhook has responded, or may repeat a part of it.
func quotesResponse(err error) bool {
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return true
	}
	_, ok := errors.AsType[*answeredError](err)
	return ok
}

// answeredError is an error that occurred after the first byte of the response. Errors of the HTTP client quote what
// they cannot parse.
type answeredError struct{ error }

func (e *answeredError) Unwrap() error { return e.error }

// send sends a request. An error after the first byte of the response is an answeredError, unless the context has
// ended.
func send(client *http.Client, req *http.Request) (*http.Response, error) {
	var began atomic.Bool
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { began.Store(true) }}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil && began.Load() && req.Context().Err() == nil {
		return nil, &answeredError{err}
	}
	return resp, err
}

// post sends a review and returns the body of the response.
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
	// net/http may retry the request when an idle connection turns out to be closed; it does not send this header.
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
		return nil, responseError(resp, body)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if len(body) == 0 {
		return nil, &answeredError{fmt.Errorf("0-length response with status code: %d and content type: %s", resp.StatusCode,
			truncate(resp.Header.Get("Content-Type"), 256))}
	}
	return body, nil
}

// responseError returns the error for a response without success: the Status in it, or its text.
func responseError(resp *http.Response, body []byte) error {
	var st metav1.Status
	if json.Unmarshal(body, &st) == nil && st.Kind == "Status" && st.Status == metav1.StatusFailure {
		st.Message = truncate(st.Message, maxMessage)
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
