// Package apireader reads objects of a cluster over HTTPS, once and without a cache, as the user of a kubeconfig. It is for commands that
// ask a question and end; what runs for longer uses package remote.
package apireader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// timeout bounds one request.
	timeout = 30 * time.Second
	// maxAnswer bounds how much of an answer is read.
	maxAnswer = 256 << 20
	// maxRefusal bounds the same for a refusal, which becomes a message.
	maxRefusal = 1 << 20
)

// Reader reads from one cluster.
type Reader struct {
	// Namespace is the one that the context of the kubeconfig names, or "default".
	Namespace string

	server        string
	printed       string // the server as errors may name it: without a password
	authorization string
	impersonation http.Header
	http          *http.Client
	loaded        Options    // what it was made of, with the name of the context
	resources     []Resource // what the server has, once it was asked
	cached        bool       // see ReadCached
}

// Server is the address of the API server, for people: a password in it is left out.
func (r *Reader) Server() string { return r.printed }

// Do makes a request and returns the answer, whatever its code. The caller closes the body.
func (r *Reader) Do(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.server+path, body)
	if err != nil {
		return nil, err
	}
	return r.send(r.http, req, header)
}

// send sends a request with the credentials of the user.
func (r *Reader) send(c *http.Client, req *http.Request, header http.Header) (*http.Response, error) {
	for name, values := range header {
		req.Header[name] = values
	}
	for name, values := range r.impersonation {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "proa")
	if r.authorization != "" {
		req.Header.Set("Authorization", r.authorization)
	}
	resp, err := c.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, fmt.Errorf("ask %s: %w", r.printed, err)
	}
	return resp, nil
}

// Raw reads a path. A refusal is an error that apierrors understands.
func (r *Reader) Raw(ctx context.Context, path, accept string) ([]byte, error) {
	resp, err := r.Do(ctx, http.MethodGet, path, http.Header{"Accept": {accept}}, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return r.readAnswer(resp, path)
}

// readAnswer reads the body of an answer. A refusal is an error that apierrors understands.
func (r *Reader) readAnswer(resp *http.Response, path string) ([]byte, error) {
	bound := int64(maxAnswer)
	if resp.StatusCode != http.StatusOK {
		bound = maxRefusal
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, bound+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", r.printed, err)
	}
	if int64(len(data)) > bound {
		return nil, fmt.Errorf("the answer of %s to %s is longer than %d MB", r.printed, path, bound>>20)
	}
	if resp.StatusCode == http.StatusOK {
		return data, nil
	}
	var status metav1.Status
	if json.Unmarshal(data, &status) == nil && status.Kind == "Status" && status.Code != 0 {
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, apierrors.NewGenericServerResponse(resp.StatusCode, "get", schema.GroupResource{}, path, http.StatusText(resp.StatusCode),
		0, false)
}

// ReadCached has all further objects read as the server has them in its cache, which may be old. It is for a cluster whose store does not
// answer.
func (r *Reader) ReadCached() { r.cached = true }

// query returns the query of a read, with a field selector if that is not empty.
func (r *Reader) query(fields string) string {
	q := url.Values{}
	if fields != "" {
		q.Set("fieldSelector", fields)
	}
	if r.cached {
		q.Set("resourceVersion", "0")
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Get reads one object into a pointer to its type, or to a map.
func (r *Reader) Get(ctx context.Context, gr schema.GroupResource, namespace, name string, into any) error {
	path, err := r.path(ctx, gr, namespace)
	if err != nil {
		return err
	}
	data, err := r.Raw(ctx, path+"/"+url.PathEscape(name)+r.query(""), "application/json")
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// List reads the objects of a namespace, or of all, into a pointer to their list type. Fields is a field selector or empty.
func (r *Reader) List(ctx context.Context, gr schema.GroupResource, namespace, fields string, into any) error {
	path, err := r.path(ctx, gr, namespace)
	if err != nil {
		return err
	}
	data, err := r.Raw(ctx, path+r.query(fields), "application/json")
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// path returns the path of a collection, in the version that the server prefers.
func (r *Reader) path(ctx context.Context, gr schema.GroupResource, namespace string) (string, error) {
	res, err := r.find(ctx, func(x *Resource) bool { return x.GroupResource() == gr })
	if err != nil {
		return "", err
	}
	if res == nil {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: gr.String()}, "")
	}
	path := "/apis/" + res.Group + "/" + res.Version
	if res.Group == "" {
		path = "/api/" + res.Version
	}
	if namespace != "" && res.Namespaced {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + res.Plural, nil
}
