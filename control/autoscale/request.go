package autoscale

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

// maxWords bounds how much of what another server says becomes part of a status and an Event.
const maxWords = 2048

// Request is one question to an API of metrics.
type Request struct {
	Group, Version                         string
	Namespace, Resource, Name, Subresource string
	// Selector narrows what is measured, and MetricSelector the metric. Either may be nil.
	Selector, MetricSelector labels.Selector
}

// Answer is what an API server has said, or whoever leads there in its place.
type Answer struct {
	// Code is that of HTTP.
	Code int
	// Text says that Body is written for people.
	Text bool
	Body []byte
}

// Verb is what the controller must be allowed to do.
func (r *Request) Verb() string {
	if r.Name == "" {
		return "list"
	}
	return "get"
}

// check finds names that would make the path another one.
func (r *Request) check() error {
	for _, part := range []struct{ what, name string }{{"namespace", r.Namespace}, {"resource", r.Resource}, {"resource name", r.Name}, {"subresource", r.Subresource}} {
		if problems := segment.IsValidPathSegmentName(part.name); len(problems) > 0 {
			return fmt.Errorf("invalid %s %.100q: %v", part.what, part.name, problems)
		}
	}
	if r.Resource == "" {
		return errors.New("a metric must have a name")
	}
	return nil
}

// URL is the path and the query of the request. Resources are in lower case there, also where they are names of metrics.
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

// failed is the error that an answer without an explanation stands for, in the words of clients of Kubernetes.
func (r *Request) failed(code int, words string) error {
	return apierrors.NewGenericServerResponse(code, "GET", schema.GroupResource{Group: r.Group, Resource: r.Resource}, r.Name, words, 0, true)
}

// get asks and decodes the answer.
func (s *served) get(ctx context.Context, r *Request, into any) error {
	if err := r.check(); err != nil {
		return err
	}
	if s.Send == nil || !slices.Contains(s.versions(r.Group), r.Version) {
		const notFound = 404
		return r.failed(notFound, "")
	}
	a, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	if a.Code < 200 || a.Code > 206 {
		return r.refusal(a)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.Body, into); err != nil {
		return fmt.Errorf("unable to read what the server of %s has answered: %w", schema.GroupVersion{Group: r.Group, Version: r.Version}, err)
	}
	return nil
}

// refusal is what an answer says that is not a good one: a Status, or anything.
func (r *Request) refusal(a *Answer) error {
	var status metav1.Status
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.Body, &status); err == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		status.Message = words(status.Message)
		return &apierrors.StatusError{ErrStatus: status}
	}
	text := "unknown"
	if a.Text {
		text = strings.TrimSpace(words(string(a.Body)))
	}
	return r.failed(a.Code, text)
}

// words are as much of what another server says as people want to read.
func words(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxWords)], "") }
