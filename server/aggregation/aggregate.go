// Package aggregation proxies requests for some group versions to aggregated API servers: those whose APIService names
// a Service. It learns of them from a view of the APIServices, forwards requests in the name of their users, and caches
// the servers' documents for discovery and OpenAPI.
//
// An aggregated server is trusted for its own group version and nothing else. Its responses are limited in size and in
// time, what it says about other groups is ignored, and redirects are refused.
package aggregation

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/kind"
	"proa.dev/server/apidiscovery"
	"proa.dev/server/extensionclient"
)

// Config holds the settings of an Aggregator.
type Config struct {
	// Clients connects to the servers, with the client certificate of the front proxy.
	Clients *extensionclient.Clients
	Log     *slog.Logger
}

// Aggregator knows the aggregated servers. Until Update is called there are none.
type Aggregator struct {
	Config
	backends atomic.Pointer[map[schema.GroupVersion]*backend]

	listeners sync.Map // of wait.Signal, sent on changes

	mu         sync.Mutex // guards what follows
	refreshers map[string]*refresher
	wg         sync.WaitGroup
	failures   *prometheus.CounterVec // how often servers have become unavailable
}

// New returns an Aggregator.
func New(c Config) *Aggregator {
	a := &Aggregator{Config: c, refreshers: map[string]*refresher{}, failures: newFailures()}
	a.backends.Store(&map[schema.GroupVersion]*backend{})
	return a
}

// backend is a group version that an aggregated server serves.
type backend struct {
	schema.GroupVersion
	name      string // of the APIService
	endpoint  extensionclient.Endpoint
	available bool
	reason    string // of the condition Available
	// groupPriority and versionPriority decide its place in discovery.
	groupPriority, versionPriority int32
	*refresher
}

// isRemote reports whether an APIService refers to another server. Those of the core group and of the group of
// APIServices itself never do: otherwise nobody could undo the APIService.
func isRemote(s *apiregistrationv1.APIService) bool {
	return s.Spec.Service != nil && s.Spec.Group != "" && s.Spec.Group != apiregistrationv1.GroupName
}

// IsRemote reports whether an object is an APIService that refers to another server.
func IsRemote(o kind.Object) bool {
	s, ok := o.(*apiregistrationv1.APIService)
	return ok && isRemote(s)
}

// backendOf returns the backend of an APIService.
func backendOf(s *apiregistrationv1.APIService) *backend {
	b := &backend{
		GroupVersion: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}, name: s.Name,
		groupPriority: s.Spec.GroupPriorityMinimum, versionPriority: s.Spec.VersionPriority,
		endpoint: extensionclient.Endpoint{
			Service:  &extensionclient.Service{Namespace: s.Spec.Service.Namespace, Name: s.Spec.Service.Name},
			CABundle: s.Spec.CABundle, Insecure: s.Spec.InsecureSkipTLSVerify,
		},
	}
	if s.Spec.Service.Port != nil {
		b.endpoint.Service.Port = *s.Spec.Service.Port
	}
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			b.available, b.reason = c.Status == apiregistrationv1.ConditionTrue, c.Reason
		}
	}
	return b
}

// Update replaces the list of APIServices. The documents of changed servers are fetched again, until ctx ends.
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
		if was != nil && was.available && !b.available {
			a.failures.WithLabelValues(b.name, b.reason).Inc()
		}
		switch {
		case was == nil || !was.sameServer(b):
			a.stopRefresher(b.name)
			b.refresher = a.startRefresher(ctx, b)
		case was.available != b.available:
			b.refresher = was.refresher
			b.refetch()
		default:
			b.refresher = was.refresher
		}
		next[b.GroupVersion] = b
	}
	for gv, was := range former {
		if next[gv] == nil {
			a.stopRefresher(was.name)
			a.failures.DeletePartialMatch(prometheus.Labels{"name": was.name})
		}
	}
	a.backends.Store(&next)
	a.notify()
}

// sameServer reports whether two backends are the same server.
func (b *backend) sameServer(other *backend) bool {
	return *b.endpoint.Service == *other.endpoint.Service && b.endpoint.Insecure == other.endpoint.Insecure &&
		string(b.endpoint.CABundle) == string(other.endpoint.CABundle)
}

// Close waits for the goroutines that fetch documents. The context that Update got must have ended.
func (a *Aggregator) Close() {
	a.wg.Wait()
	a.Clients.Close()
}

// Serves reports whether an aggregated server serves a group version.
func (a *Aggregator) Serves(gv schema.GroupVersion) bool { return (*a.backends.Load())[gv] != nil }

// Versions returns the group versions of aggregated servers for discovery, sorted.
func (a *Aggregator) Versions() []apidiscovery.Remote {
	all := *a.backends.Load()
	if len(all) == 0 {
		return nil
	}
	out := make([]apidiscovery.Remote, 0, len(all))
	for gv, b := range all {
		r := apidiscovery.Remote{GroupVersion: gv, GroupPriority: b.groupPriority, VersionPriority: b.versionPriority, Stale: true}
		if d := b.documents(); d != nil && b.available {
			r.Resources, r.Stale = d.resources, false
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b apidiscovery.Remote) int { return compareVersions(a.GroupVersion, b.GroupVersion) })
	return out
}
