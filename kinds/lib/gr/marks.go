package gr

const (
	// LoadBalancerAnnotation is the annotation of a Service that names the provider of the load balancer addresses in its status. The load
	// balancer controller removes the annotation and the addresses from Services that it did not give them to.
	LoadBalancerAnnotation = "proa.dev/load-balancer"
	// LoadBalancerNodes is the provider that uses the addresses of nodes as load balancer addresses.
	LoadBalancerNodes = "nodes"
)
