package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// requestTimeout bounds a request other than a watch. It is a little longer than the server's own timeout.
const requestTimeout = 65 * time.Second

// writeOptions returns the query parameters of a write: the field manager, and that unknown fields are ignored.
func writeOptions() url.Values {
	return url.Values{"fieldManager": {fieldManager}, "fieldValidation": {metav1.FieldValidationIgnore}}
}

// Get reads one object or subresource.
func (c *Client) Get(ctx context.Context, gr schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errors.New("an object without a name cannot be read")
	}
	return c.do(ctx, &call{method: http.MethodGet, def: def, namespace: namespace, name: name, sub: sub}, nil)
}

// Create stores a new object.
func (c *Client) Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error) {
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	return c.do(ctx, &call{method: http.MethodPost, def: def, namespace: obj.GetNamespace(), query: writeOptions()}, obj)
}

// Update stores a changed object, or a subresource of it.
func (c *Client) Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		return nil, errors.New("an object without a name cannot be updated")
	}
	return c.do(ctx, &call{method: http.MethodPut, def: def, namespace: obj.GetNamespace(), name: obj.GetName(), sub: sub,
		query: writeOptions()}, obj)
}

// Act creates a subresource.
func (c *Client) Act(ctx context.Context, gr schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	if name == "" || sub == "" {
		return nil, errors.New("an action needs the name of an object, and its own")
	}
	return c.do(ctx, &call{method: http.MethodPost, def: def, namespace: namespace, name: name, sub: sub, query: writeOptions()}, body)
}

// Delete removes one object.
func (c *Client) Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	if name == "" {
		return errors.New("an object without a name cannot be deleted")
	}
	return c.remove(ctx, gr, namespace, name, nil, options)
}

// DeleteAll removes the objects of a namespace.
func (c *Client) DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, only fields.Set,
	options metav1.DeleteOptions) error {
	var query url.Values
	if len(only) > 0 {
		query = url.Values{"fieldSelector": {fields.SelectorFromSet(only).String()}}
	}
	return c.remove(ctx, gr, namespace, "", query, options)
}

func (c *Client) remove(ctx context.Context, gr schema.GroupResource, namespace, name string, query url.Values,
	options metav1.DeleteOptions) error {
	def, err := c.def(gr)
	if err != nil {
		return err
	}
	options.Kind, options.APIVersion = "DeleteOptions", "v1"
	body, err := json.Marshal(&options)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, requestTimeout)
	defer stop()
	_, err = c.exchangeBytes(ctx, &call{method: http.MethodDelete, def: def, namespace: namespace, name: name, query: query, body: body,
		media: codec.JSON}, c.MaxList)
	if err == nil || mayHaveWritten(err) {
		client.WriteSetOf(ctx).Add(gr, 0) // the response does not have the revision
	}
	return err
}

// do makes a request, with obj as its body unless that is nil, and returns the object of the response. It returns nil
// if the response is a Status.
func (c *Client) do(ctx context.Context, q *call, obj kind.Object) (kind.Object, error) {
	want, into := q.def.GroupVersionKind, q.def.New
	if q.sub != "" {
		s := q.def.Sub(q.sub)
		if s == nil {
			return nil, fmt.Errorf("%s has no subresource %s", q.def.Resource(), q.sub)
		}
		if s.Body != nil && s.Body.New != nil {
			want, into = s.Body.GroupVersionKind, s.Body.New
		}
	}
	q.media = mediaOf(into())
	if obj != nil {
		obj.GetObjectKind().SetGroupVersionKind(want)
		body, err := c.encode(obj, q.media)
		if err != nil {
			return nil, err
		}
		q.body = body
	}
	writes := client.WriteSetOf(ctx)
	ctx, stop := context.WithTimeout(ctx, requestTimeout)
	defer stop()
	out, err := c.exchange(ctx, q, want, into)
	if q.method == http.MethodGet {
		return out, err
	}
	switch {
	case err != nil && mayHaveWritten(err), err == nil && out == nil:
		writes.Add(q.def.Resource(), 0)
	case err == nil && !q.def.Transient:
		rev, perr := strconv.ParseInt(out.GetResourceVersion(), 10, 64)
		if perr != nil || q.sub != "" {
			rev = 0 // a subresource may have written other objects, too
		}
		writes.Add(q.def.Resource(), rev)
	}
	return out, err
}

func (c *Client) exchange(ctx context.Context, q *call, want schema.GroupVersionKind, into func() kind.Object) (kind.Object, error) {
	data, err := c.exchangeBytes(ctx, q, maxObject)
	if err != nil {
		return nil, err
	}
	if isStatus(data, q.media) {
		return nil, nil // success without an object, as package client specifies it
	}
	return c.decode(data, q.media, want, into())
}

// mayHaveWritten reports whether a write may have been made although it returned an error.
func mayHaveWritten(err error) bool {
	var st apierrors.APIStatus
	if !errors.As(err, &st) {
		return true // the connection was lost
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err)
}
