// Package network is hop 12 of 12: objects become traffic. It has no code of its own; the parts are the folders below.
// Package cni is how a container runtime asks for the network of a Pod, pod is who answers it, service turns Services and
// EndpointSlices into rules of the kernel, policy does so with NetworkPolicies, dns answers names, mesh leads to the Pods of
// other nodes. Package conntrack makes the kernel forget connections. Package route is a reverse proxy, and ingress makes rules
// for it of Ingresses.
package network
