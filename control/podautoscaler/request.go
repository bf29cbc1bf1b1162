package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	segment "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// maxErrorText bounds the part of an error message of another server that is copied into a status and an Event, in bytes.
const maxErrorText = 2048

// Request is a request to a metrics API.
type Request struct {
	Group, Version                         string
	Namespace, Resource, Name, Subresource string
	// Selector selects objects, and MetricSelector the metric. Either may be nil.
	Selector, MetricSelector labels.Selector
}

// Answer is the response of an API server, or of the aggregator in its place.
type Answer struct {
	// Code is the HTTP status code.
	Code int
	// Text is true if Body is plain text.
	Text bool
	Body []byte
}

// Verb returns the RBAC verb that the controller needs for the request.
func (r *Request) Verb() string {
	if r.Name == "" {
		return "list"
	}
	return "get"
}

// check returns an error if a name would change the path of the request.
func (r *Request) check() error {
	for _, part := range []struct{ what, name string }{{"namespace", r.Namespace}, {"resource", r.Resource}, {"resource name", r.Name},
		{"subresource", r.Subresource}} {
		if problems := segment.IsValidPathSegmentName(part.name); len(problems) > 0 {
			return fmt.Errorf("invalid %s %.100q: %v", part.what, part.name, problems)
		}
	}
	if r.Resource == "" {
		return errors.New("a metric must have a name")
	}
	return nil
}

// URL returns the path and the query of the request. Resources are in lower case, including those that are names of metrics.
func (r *Request) URL() *url.URL {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", r.Group, r.Version, r.Namespace, strings.ToLower(r.Resource))
	for _, part := range []string{r.Name, r.Subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	query := url.Values{}
	for key, s := range map[string]labels.Selector{"labelSelector": r.Selector, "metricLabelSelector": r.MetricSelector} {
		if s != nil && s.String() != "" {
			query.Set(key, s.String())
		}
	}
	return &url.URL{Path: path, RawQuery: query.Encode()}
}

// errorOf returns the error for a response without a Status, as client-go formats it.
func (r *Request) errorOf(code int, message string) error {
	return apierrors.NewGenericServerResponse(code, "GET", schema.GroupResource{Group: r.Group, Resource: r.Resource}, r.Name, message, 0,
		true)
}

// get sends a request and decodes the response.
func (s *served) get(ctx context.Context, r *Request, into any) error {
	if err := r.check(); err != nil {
		return err
	}
	if s.Send == nil || !slices.Contains(s.versions(r.Group), r.Version) {
		const notFound = 404
		return r.errorOf(notFound, "")
	}
	a, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	if a.Code < 200 || a.Code > 206 {
		return r.errorFrom(a)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.Body, into); err != nil {
		return fmt.Errorf("unable to read what the server of %s has answered: %w", schema.GroupVersion{Group: r.Group, Version: r.Version},
			err)
	}
	return nil
}

// errorFrom returns the error of an unsuccessful response: its Status, or a generic one.
func (r *Request) errorFrom(a *Answer) error {
	var status metav1.Status
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.Body, &status); err == nil && status.Kind == "Status" &&
		status.Status == metav1.StatusFailure {
		status.Message = truncateText(status.Message)
		return &apierrors.StatusError{ErrStatus: status}
	}
	text := "unknown"
	if a.Text {
		text = strings.TrimSpace(truncateText(string(a.Body)))
	}
	return r.errorOf(a.Code, text)
}

// truncateText truncates a message of another server.
func truncateText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "") }
