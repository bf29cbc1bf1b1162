package run

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// maxElsewhere bounds a list of objects of an aggregated API server that controllers of any resource read.
const maxElsewhere = 64 << 20

// elsewhereDefs describe the resources of aggregated API servers that can be listed, watched and deleted, as the controllers of any resource
// must know them. Group versions come in the order in which discovery prefers them, and a resource once.
func (s *Server) elsewhereDefs() (out []*kind.Def) {
	if s.aggregator == nil {
		return nil
	}
	for _, v := range s.aggregator.Versions() {
		for i := range v.Resources {
			if d := elsewhereDef(v.GroupVersion, &v.Resources[i]); d != nil {
				out = append(out, d)
			}
		}
	}
	return out
}

// elsewhereDef describes one resource; nil if controllers cannot do anything with it.
func elsewhereDef(gv schema.GroupVersion, r *apidiscoveryv2.APIResourceDiscovery) *kind.Def {
	gvk := gv.WithKind("")
	if k := r.ResponseKind; k != nil {
		gvk.Kind = k.Kind
		if k.Group != "" && k.Group != gv.Group {
			return nil // kinds of others, which are not this server's to speak of
		}
	}
	d := &kind.Def{
		GroupVersionKind: gvk, Plural: r.Resource, Singular: r.SingularResource, Verbs: r.Verbs, JSONOnly: true,
		New:  func() kind.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		Load: func([]byte) (kind.Object, error) { return nil, fmt.Errorf("%s are stored elsewhere", r.Resource) }, // it comes and goes as custom ones do
	}
	if r.Scope == apidiscoveryv2.ScopeCluster {
		d.Scope = kind.Cluster
	}
	if gvk.Kind == "" || !d.Allows("list") || !d.Allows("watch") || !d.Allows("delete") {
		return nil
	}
	return d
}

// servedElsewhere says that an aggregated API server has a resource.
func (s *Server) servedElsewhere(on schema.GroupResource) bool { return s.elsewhereDefOf(on) != nil }

func (s *Server) elsewhereDefOf(on schema.GroupResource) *kind.Def {
	for _, d := range s.elsewhereDefs() {
		if d.Resource() == on {
			return d
		}
	}
	return nil
}

// undiscovered are the group versions whose API servers do not say what they have.
func (s *Server) undiscovered() (out []schema.GroupVersion) {
	if s.aggregator == nil {
		return nil
	}
	for _, v := range s.aggregator.Versions() {
		if v.Stale {
			out = append(out, v.GroupVersion)
		}
	}
	return out
}

// elsewhere is the access of a controller to resources of this server, and to those of aggregated API servers by the same methods. It is
// who it is there too: the other server asks this one what the controller may do.
type elsewhere struct {
	client.Client
	server *Server
	as     user.Info

	mu    sync.Mutex // guards what follows
	known map[schema.GroupVersionResource]*foreign
}

// foreign is one resource of an aggregated API server.
type foreign struct {
	*remote.Client
	def    *kind.Def
	opened chan struct{} // closed when view and err are there; nil when nobody opens the view
	view   client.View
}

// ofAnyResource are the controllers that act on objects of every resource there is.
func ofAnyResource() []string {
	return []string{"generic-garbage-collector", "namespace-controller", "resourcequota-controller"}
}

// withElsewhere lets a controller's client reach aggregated API servers.
func (s *Server) withElsewhere(c client.Client, as user.Info) *elsewhere {
	return &elsewhere{Client: c, server: s, as: as, known: map[schema.GroupVersionResource]*foreign{}}
}

// find returns the way to a resource that is elsewhere; nil for one of this server.
func (e *elsewhere) find(on schema.GroupResource) (*foreign, error) {
	s := e.server
	if s.aggregator == nil || on.Group == "" || s.state.Def(on) != nil {
		return nil, nil
	}
	def := s.elsewhereDefOf(on)
	e.mu.Lock()
	defer e.mu.Unlock()
	if def == nil {
		e.forget(on)
		return nil, nil
	}
	key := def.GroupVersion().WithResource(def.Plural)
	if f := e.known[key]; f != nil && f.def.GroupVersionKind == def.GroupVersionKind && f.def.Scope == def.Scope {
		return f, nil
	}
	c, err := remote.New(s.life, remote.Config{
		URL: "https://elsewhere", Transport: s.aggregator.RoundTripper(e.as), Resources: []*kind.Def{def}, MaxList: maxElsewhere,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	e.known[key] = &foreign{Client: c, def: def}
	return e.known[key], nil
}

// View opens the cache of a resource. One elsewhere is read in the background, so that nobody waits for its server: until it is there, who
// follows it tries again.
func (e *elsewhere) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	f, err := e.find(on)
	if err != nil || f == nil {
		if err == nil {
			return e.Client.View(ctx, on)
		}
		return nil, err
	}
	if v, _ := e.open(f, on); v != nil {
		return v, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("the server of %s has not told its objects yet", on))
}

// open returns the view of a resource elsewhere, or what is closed when the attempt to open it is over.
func (e *elsewhere) open(f *foreign, on schema.GroupResource) (client.View, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.view != nil || f.opened != nil {
		return f.view, f.opened
	}
	f.opened = make(chan struct{})
	go func() {
		v, err := f.Client.View(e.server.life, on) //nolint:contextcheck // it outlives who asks first
		e.mu.Lock()
		defer e.mu.Unlock()
		if err == nil {
			f.view = v
		}
		close(f.opened)
		f.opened = nil
	}()
	return nil, f.opened
}

// patience is how long somebody waits for the objects of an aggregated API server.
const patience = 5 * time.Second

// Open is View for who would rather wait a little.
func (e *elsewhere) Open(ctx context.Context, on schema.GroupResource) (client.View, error) {
	if f, err := e.find(on); err == nil && f != nil {
		if v, opened := e.open(f, on); v == nil {
			ctx, stop := context.WithTimeout(ctx, patience)
			defer stop()
			select {
			case <-opened:
			case <-ctx.Done():
			}
		}
	}
	return e.View(ctx, on)
}

// forget ends what is kept of a resource that is not served any more. e.mu is held.
func (e *elsewhere) forget(on schema.GroupResource) {
	for key, f := range e.known {
		if key.GroupResource() == on {
			delete(e.known, key)
			go f.Close()
		}
	}
}

// Get reads an object.
func (e *elsewhere) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	f, err := e.find(on)
	if err != nil || f == nil {
		if err == nil {
			return e.Client.Get(ctx, on, namespace, name, sub)
		}
		return nil, err
	}
	return f.Client.Get(ctx, on, namespace, name, sub)
}

// Update stores an object.
func (e *elsewhere) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	f, err := e.find(on)
	if err != nil || f == nil {
		if err == nil {
			return e.Client.Update(ctx, on, obj, sub)
		}
		return nil, err
	}
	return f.Client.Update(ctx, on, obj, sub)
}

// Delete removes one object.
func (e *elsewhere) Delete(ctx context.Context, on schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	f, err := e.find(on)
	if err != nil || f == nil {
		if err == nil {
			return e.Client.Delete(ctx, on, namespace, name, options)
		}
		return err
	}
	return f.Client.Delete(ctx, on, namespace, name, options)
}

// DeleteAll removes all objects of a namespace. Of a server that cannot do that, they have been deleted one by one.
func (e *elsewhere) DeleteAll(ctx context.Context, on schema.GroupResource, namespace string, only fields.Set, options metav1.DeleteOptions) error {
	f, err := e.find(on)
	if err != nil || f == nil {
		if err == nil {
			return e.Client.DeleteAll(ctx, on, namespace, only, options)
		}
		return err
	}
	if !f.def.Allows("deletecollection") {
		return nil
	}
	return f.Client.DeleteAll(ctx, on, namespace, only, options)
}

// alsoElsewhere has a controller follow the resources of aggregated API servers as they come and go.
func (s *Server) alsoElsewhere(c control.Controller) control.Controller {
	if s.aggregator != nil {
		c.Follow.Elsewhere = s.aggregator.Changed(s.life)
	}
	return c
}

// andElsewhere adds the resources of aggregated API servers that live in namespaces to others.
func (s *Server) andElsewhere(resources func() []schema.GroupResource) func() []schema.GroupResource {
	return func() []schema.GroupResource {
		return slices.Concat(resources(), namespaced(s.elsewhereDefs(), []string{"list", "watch", "delete"}))
	}
}

// openAnywhere opens views for the controller that empties namespaces.
func (s *Server) openAnywhere(name string) func(context.Context, schema.GroupResource) (client.View, error) {
	if e, ok := s.controller(name).(*elsewhere); ok {
		return e.Open
	}
	return s.controller(name).View
}

// allResources are those of this server and of aggregated ones. What both have is this server's.
func (s *Server) allResources() []*kind.Def {
	own, others := s.Resources(), s.elsewhereDefs()
	if len(others) == 0 {
		return own
	}
	others = slices.DeleteFunc(others, func(d *kind.Def) bool {
		return slices.ContainsFunc(own, func(o *kind.Def) bool { return o.Resource() == d.Resource() })
	})
	return slices.Concat(own, others)
}
