package aggregation

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/internal/wait"
)

// RoundTripper forwards requests of a part of this process to the servers of their group versions, in the name of a
// user. The host of a request's URL is ignored. A server that is not available is not called.
func (a *Aggregator) RoundTripper(as user.Info) http.RoundTripper { return roundTripper{a, as} }

type roundTripper struct {
	*Aggregator
	as user.Info
}

// RoundTrip sends a request.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	gv, ok := versionOf(req.URL.Path)
	b := (*t.backends.Load())[gv]
	switch {
	case !ok || b == nil:
		return nil, errors.New("no aggregated API server serves " + req.URL.Path)
	case !b.available:
		return nil, apierrors.NewServiceUnavailable("the API server of " + gv.String() + " is not available")
	}
	transport, at, err := t.Clients.Transport(&b.endpoint)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
	out.Host = at.Host
	setUser(out.Header, t.as)
	return transport.RoundTrip(out)
}

// versionOf returns the group version of a path.
func versionOf(path string) (schema.GroupVersion, bool) {
	parts := strings.SplitN(strings.Trim(path, "/"), "/", 4)
	if len(parts) < 4 || parts[0] != "apis" {
		return schema.GroupVersion{}, false
	}
	return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
}

// Changed returns a channel that is signalled when the group versions of aggregated servers, or their resources, may
// have changed, until ctx ends.
func (a *Aggregator) Changed(ctx context.Context) <-chan struct{} {
	c := wait.NewSignal()
	a.listeners.Store(c, struct{}{})
	context.AfterFunc(ctx, func() { a.listeners.Delete(c) })
	return c
}

// notify signals all listeners.
func (a *Aggregator) notify() {
	a.listeners.Range(func(c, _ any) bool {
		c.(wait.Signal).Send()
		return true
	})
}
