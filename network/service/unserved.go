package service

import (
	"fmt"
	"net/netip"
)

// reportUnserved logs once which addresses in the status of a Service are not served. Of all nodes, the first by name
// also records an Event.
func (p *Proxy) reportUnserved(k key, list []netip.Addr) {
	if len(list) == 0 {
		delete(p.reported, k)
		return
	}
	text := fmt.Sprint(list)
	if p.reported[k] == text {
		return
	}
	p.reported[k] = text
	p.Log.Warn("addresses of a load balancer are not served: they are neither in --load-balancer-ranges nor given by the load balancer of the nodes", "service", k, "addresses", text)
	svc, ok := p.Services.Get(k.Namespace, k.Name)
	if !ok || p.RecordEvent == nil {
		return
	}
	for o := range p.Nodes.List("") {
		if o.GetName() < p.NodeName {
			return
		}
	}
	p.RecordEvent(svc, "LoadBalancerNotServed", fmt.Sprintf("nodes do not lead traffic to %s in the status to this Service; if the address is its load balancer's, start all nodes with it in --load-balancer-ranges", list[0]))
}
