package proxysync

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/network/httpproxy"
)

// Pools keeps a pool of endpoints for each backend that the rules of a proxy name. One goroutine uses it. Make one with NewPools.
type Pools struct {
	// MayDial reports whether the proxy may connect to an address; Reachable unless a test says otherwise.
	MayDial func(netip.Addr) bool

	services, endpointSlices client.View
	pools                    map[httpproxy.Ref]*httpproxy.Pool
	used                     map[httpproxy.Ref]bool
}

// NewPools returns pools that read their endpoints from views of Services and EndpointSlices.
func NewPools(services, endpointSlices client.View) *Pools {
	return &Pools{
		MayDial: Reachable, services: services, endpointSlices: endpointSlices,
		pools: map[httpproxy.Ref]*httpproxy.Pool{}, used: map[httpproxy.Ref]bool{},
	}
}

// Use returns the pool of a backend with its current endpoints. The pool stays until DropUnused finds that it was not used again.
func (p *Pools) Use(ref httpproxy.Ref) *httpproxy.Pool {
	pool := p.pools[ref]
	if pool == nil {
		pool = httpproxy.NewPool(ref)
		p.pools[ref] = pool
	}
	if !p.used[ref] {
		p.used[ref] = true
		pool.Set(p.endpoints(ref))
	}
	return pool
}

// DropUnused closes the pools that Use has not returned since the last call.
func (p *Pools) DropUnused() {
	for ref, pool := range p.pools {
		if !p.used[ref] {
			pool.Set(nil)
			delete(p.pools, ref)
		}
	}
	p.used = map[httpproxy.Ref]bool{}
}

// Update reads the endpoints of the Services in changed again.
func (p *Pools) Update(changed map[types.NamespacedName]bool) {
	for ref, pool := range p.pools {
		if changed[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Service}] {
			pool.Set(p.endpoints(ref))
		}
	}
}

// Close takes the endpoints out of all pools.
func (p *Pools) Close() {
	for _, pool := range p.pools {
		pool.Set(nil)
	}
}

func (p *Pools) endpoints(ref httpproxy.Ref) []netip.AddrPort {
	k := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Service}
	return EndpointsOf(Find[*corev1.Service](p.services, k), ref, SlicesOf(p.endpointSlices, k), p.MayDial)
}

// SlicesOf returns the EndpointSlices of a Service.
func SlicesOf(view client.View, service types.NamespacedName) (list []*discoveryv1.EndpointSlice) {
	for o := range view.By(byService(), service.String()) {
		if e, ok := o.(*discoveryv1.EndpointSlice); ok {
			list = append(list, e)
		}
	}
	return list
}

// byService indexes EndpointSlices by their Service. Others index the same view under the same name by the same values.
func byService() client.Index {
	return client.Index{Name: "service", Values: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}
