// Package aggregate leads requests for some group versions to the API servers that serve them: those whose APIService names a Service. It knows
// which these are from a view of the APIServices, sends requests there in the name of their users, and keeps what the servers say about
// themselves for discovery and OpenAPI.
//
// An aggregated server is believed about its own group version and nothing else. What it says is bounded in size and in time, what it says about
// other groups is left out, and a redirect is refused.
package aggregate

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/kind"
	"proa.dev/server/discovery"
	"proa.dev/server/extension"
)

// Config is what an Aggregator is made of.
type Config struct {
	// Clients lead to the servers, and show them the certificate with which this server speaks for others.
	Clients *extension.Clients
	Log     *slog.Logger
}

// Aggregator knows the aggregated servers. Until Update is called there are none.
type Aggregator struct {
	Config
	backends atomic.Pointer[map[schema.GroupVersion]*backend]

	listeners sync.Map // chan struct{}: of those who want to know of changes

	mu      sync.Mutex // guards what follows
	keepers map[string]*keeper
	wg      sync.WaitGroup
}

// New makes an Aggregator.
func New(c Config) *Aggregator {
	a := &Aggregator{Config: c, keepers: map[string]*keeper{}}
	a.backends.Store(&map[schema.GroupVersion]*backend{})
	return a
}

// backend is a group version that an aggregated server serves.
type backend struct {
	schema.GroupVersion
	name      string // of the APIService
	endpoint  extension.Endpoint
	available bool
	// groupPriority and versionPriority are its place in discovery.
	groupPriority, versionPriority int32
	*keeper
}

// isRemote says that an APIService leads to another server. The core group and the group of APIServices themselves never do: without them
// nobody could take the APIService back.
func isRemote(s *apiregistrationv1.APIService) bool {
	return s.Spec.Service != nil && s.Spec.Group != "" && s.Spec.Group != apiregistrationv1.GroupName
}

// IsRemote says that an object is an APIService that leads to another server.
func IsRemote(o kind.Object) bool {
	s, ok := o.(*apiregistrationv1.APIService)
	return ok && isRemote(s)
}

// backendOf is what an APIService says about a server.
func backendOf(s *apiregistrationv1.APIService) *backend {
	b := &backend{
		GroupVersion: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}, name: s.Name,
		groupPriority: s.Spec.GroupPriorityMinimum, versionPriority: s.Spec.VersionPriority,
		endpoint: extension.Endpoint{
			Service:  &extension.Service{Namespace: s.Spec.Service.Namespace, Name: s.Spec.Service.Name},
			CABundle: s.Spec.CABundle, Insecure: s.Spec.InsecureSkipTLSVerify,
		},
	}
	if s.Spec.Service.Port != nil {
		b.endpoint.Service.Port = *s.Spec.Service.Port
	}
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			b.available = c.Status == apiregistrationv1.ConditionTrue
		}
	}
	return b
}

// Update takes over all APIServices as they are now. What is kept of servers that have changed is fetched again, until ctx ends.
func (a *Aggregator) Update(ctx context.Context, services iter.Seq[kind.Object]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next, former := map[schema.GroupVersion]*backend{}, *a.backends.Load()
	for o := range services {
		if !IsRemote(o) {
			continue
		}
		b := backendOf(o.(*apiregistrationv1.APIService))
		was := former[b.GroupVersion]
		switch {
		case was == nil || !was.sameServer(b):
			a.end(b.name)
			b.keeper = a.begin(ctx, b)
		case was.available != b.available:
			b.keeper = was.keeper
			b.refetch()
		default:
			b.keeper = was.keeper
		}
		next[b.GroupVersion] = b
	}
	for gv, was := range former {
		if next[gv] == nil {
			a.end(was.name)
		}
	}
	a.backends.Store(&next)
	a.tell()
}

// sameServer says that an APIService has not been changed in a way that leads elsewhere.
func (b *backend) sameServer(other *backend) bool {
	return *b.endpoint.Service == *other.endpoint.Service && b.endpoint.Insecure == other.endpoint.Insecure && string(b.endpoint.CABundle) == string(other.endpoint.CABundle)
}

// Close ends what fetches documents. The context that Update got must have ended.
func (a *Aggregator) Close() {
	a.wg.Wait()
	a.Clients.Close()
}

// Serves says whether an aggregated server serves a group version.
func (a *Aggregator) Serves(gv schema.GroupVersion) bool { return (*a.backends.Load())[gv] != nil }

// Versions are the group versions of aggregated servers as discovery shows them, in the order of their names.
func (a *Aggregator) Versions() []discovery.Remote {
	all := *a.backends.Load()
	if len(all) == 0 {
		return nil
	}
	out := make([]discovery.Remote, 0, len(all))
	for gv, b := range all {
		r := discovery.Remote{GroupVersion: gv, GroupPriority: b.groupPriority, VersionPriority: b.versionPriority, Stale: true}
		if d := b.documents(); d != nil && b.available {
			r.Resources, r.Stale = d.resources, false
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b discovery.Remote) int { return compareVersions(a.GroupVersion, b.GroupVersion) })
	return out
}
