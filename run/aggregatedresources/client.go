package aggregatedresources

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/kind"
)

const (
	// maxListBytes bounds a list of objects of an aggregated API server.
	maxListBytes = 64 << 20
	// openTimeout is how long Open waits for the objects of an aggregated API server.
	openTimeout = 5 * time.Second
)

// Client gives a controller access to the resources of this server, and by the same methods to those of aggregated API servers. It has
// the controller's identity there too: the other server asks this one what the controller may do.
type Client struct {
	client.Client // of this server
	resources     Resources
	as            user.Info

	mu    sync.Mutex // guards what follows
	known map[schema.GroupVersionResource]*remoteResource
}

// remoteResource is one resource of an aggregated API server.
type remoteResource struct {
	*remote.Client
	def    *kind.Def
	opened chan struct{} // closed when the attempt to open the view has ended; nil when there is none
	view   client.View
}

// Client extends the client of a controller by the resources of aggregated API servers.
func (r Resources) Client(own client.Client, as user.Info) *Client {
	return &Client{Client: own, resources: r, as: as, known: map[schema.GroupVersionResource]*remoteResource{}}
}

// find returns the client of a resource of an aggregated API server; nil for a resource of this server.
func (c *Client) find(on schema.GroupResource) (*remoteResource, error) {
	if c.resources.Aggregator == nil || on.Group == "" || c.resources.IsLocal(on) {
		return nil, nil
	}
	def := c.resources.find(on)
	c.mu.Lock()
	defer c.mu.Unlock()
	if def == nil {
		c.forget(on)
		return nil, nil
	}
	key := def.GroupVersion().WithResource(def.Plural)
	if f := c.known[key]; f != nil && f.def.GroupVersionKind == def.GroupVersionKind && f.def.Scope == def.Scope {
		return f, nil
	}
	opened, err := remote.New(c.resources.Lifetime, remote.Config{
		URL: "https://elsewhere", Transport: c.resources.Aggregator.RoundTripper(c.as), Resources: []*kind.Def{def}, MaxList: maxListBytes,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	c.known[key] = &remoteResource{Client: opened, def: def}
	return c.known[key], nil
}

// clientFor returns the client through which a resource is reached.
func (c *Client) clientFor(on schema.GroupResource) (client.Client, error) {
	f, err := c.find(on)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return c.Client, nil
	}
	return f.Client, nil
}

// View opens the cache of a resource. That of an aggregated API server is filled in the background, so that no controller waits for
// another server: until it is filled, View returns an error and its caller retries.
func (c *Client) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	f, err := c.find(on)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return c.Client.View(ctx, on)
	}
	if v, _ := c.open(f, on); v != nil {
		return v, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("the server of %s has not told its objects yet", on))
}

// open returns the view of a resource of an aggregated API server, or a channel that is closed when the attempt to open it has ended.
func (c *Client) open(f *remoteResource, on schema.GroupResource) (client.View, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.view != nil || f.opened != nil {
		return f.view, f.opened
	}
	f.opened = make(chan struct{})
	go func() {
		v, err := f.Client.View(c.resources.Lifetime, on)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			f.view = v
		}
		close(f.opened)
		f.opened = nil
	}()
	return nil, f.opened
}

// Open is View for callers that would rather wait some seconds than retry.
func (c *Client) Open(ctx context.Context, on schema.GroupResource) (client.View, error) {
	if f, err := c.find(on); err == nil && f != nil {
		if v, opened := c.open(f, on); v == nil {
			ctx, stop := context.WithTimeout(ctx, openTimeout)
			defer stop()
			select {
			case <-opened:
			case <-ctx.Done():
			}
		}
	}
	return c.View(ctx, on)
}

// forget closes the clients of a resource that is not served any more. The caller holds c.mu.
func (c *Client) forget(on schema.GroupResource) {
	for key, f := range c.known {
		if key.GroupResource() == on {
			delete(c.known, key)
			go f.Close()
		}
	}
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	to, err := c.clientFor(on)
	if err != nil {
		return nil, err
	}
	return to.Get(ctx, on, namespace, name, sub)
}

// Update stores an object.
func (c *Client) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	to, err := c.clientFor(on)
	if err != nil {
		return nil, err
	}
	return to.Update(ctx, on, obj, sub)
}

// Delete removes one object.
func (c *Client) Delete(ctx context.Context, on schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	to, err := c.clientFor(on)
	if err != nil {
		return err
	}
	return to.Delete(ctx, on, namespace, name, options)
}

// DeleteAll removes all objects of a namespace. If the aggregated API server does not support that, the controller deletes them one by
// one, and DeleteAll does nothing.
func (c *Client) DeleteAll(ctx context.Context, on schema.GroupResource, namespace string, only fields.Set,
	options metav1.DeleteOptions) error {
	f, err := c.find(on)
	switch {
	case err != nil:
		return err
	case f == nil:
		return c.Client.DeleteAll(ctx, on, namespace, only, options)
	case !f.def.Serves("deletecollection"):
		return nil
	}
	return f.Client.DeleteAll(ctx, on, namespace, only, options)
}
