package service

import (
	"fmt"
	"net/netip"
)

// tellUnserved logs once which addresses in the status of a Service are not served. One node of all, the first by name, makes an
// Event of it.
func (p *Proxy) tellUnserved(k key, list []netip.Addr) {
	if len(list) == 0 {
		delete(p.told, k)
		return
	}
	text := fmt.Sprint(list)
	if p.told[k] == text {
		return
	}
	p.told[k] = text
	p.Log.Warn("addresses of a load balancer are not served: they are neither in --load-balancer-ranges nor given by the load balancer of the nodes", "service", k, "addresses", text)
	svc, ok := p.Services.Get(k.namespace, k.name)
	if !ok || p.Complain == nil {
		return
	}
	for o := range p.Nodes.List("") {
		if o.GetName() < p.NodeName {
			return
		}
	}
	p.Complain(svc, "LoadBalancerNotServed", fmt.Sprintf("nodes do not lead traffic to %s in the status to this Service; if the address is its load balancer's, start all nodes with it in --load-balancer-ranges", list[0]))
}
