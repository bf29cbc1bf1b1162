package service

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/nodereport"
	"proa.dev/network/firstanswer"
)

// expectAnswers makes the first answers of the Pods on this node recorded that have become ready with a change of an EndpointSlice. It
// comes before the rules that lead to them.
func (t *tracer) expectAnswers(e client.Event) {
	now, isSlice := e.Object.(*discoveryv1.EndpointSlice)
	if t.expect == nil || !isSlice {
		return
	}
	before, _ := e.Old.(*discoveryv1.EndpointSlice)
	for pod, endpoints := range t.newEndpoints(now, before) {
		r := t.newRecord(e, hop.Answer)
		r.Steps = []hop.Step{{Hop: hop.Network, Name: nodereport.Text(pod)}}
		t.expect(r, endpoints...)
	}
}

// newEndpoints returns the endpoints on the node that are ready now and were not before, by Pod. Those for SCTP are left out: the kernel
// does not say which of their connections were refused.
func (t *tracer) newEndpoints(now, before *discoveryv1.EndpointSlice) map[string][]firstanswer.Endpoint {
	out := map[string][]firstanswer.Endpoint{}
	known := readyAddresses(before)
	for i := range now.Endpoints {
		e := &now.Endpoints[i]
		if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
			continue
		}
		for _, p := range now.Ports {
			if p.Port == nil || p.Protocol == nil || *p.Protocol == corev1.ProtocolSCTP {
				continue
			}
			x, ok := readEndpoint(e, *p.Port, nodeFacts{name: t.node})
			if ok && x.local && x.ready && !known[e.Addresses[0]] && t.isOfPod(now, e.TargetRef, x.addr.Addr()) {
				name := e.TargetRef.Name
				out[name] = append(out[name], firstanswer.Endpoint{Protocol: protocolNumber(*p.Protocol), Addr: x.addr})
			}
		}
	}
	return out
}

// isOfPod reports whether an address in a slice is that of the Pod that the slice names, and the Pod is in its namespace.
func (t *tracer) isOfPod(s *discoveryv1.EndpointSlice, ref *corev1.ObjectReference, addr netip.Addr) bool {
	return t.hasPod == nil || t.hasPod(ref.UID, s.Namespace, addr)
}
