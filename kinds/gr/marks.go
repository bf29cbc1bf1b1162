package gr

const (
	// LoadBalancerMark is the annotation of a Service that says which provider of load balancers has written the addresses in its
	// status. The controller of load balancers removes it, and the addresses, from a Service that it has not given them to.
	LoadBalancerMark = "proa.dev/load-balancer"
	// LoadBalancerNodes is the provider that gives Services the addresses of nodes.
	LoadBalancerNodes = "nodes"
)
