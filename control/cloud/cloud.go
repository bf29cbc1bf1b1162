// Package cloud connects a cluster with whoever runs the machines below it. A Provider says what there is: load balancers,
// instances, routes. The loops here do with it what the cloud-controller-manager of Kubernetes does, in the same words. What a
// provider does not have has no loop.
package cloud

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
)

// Provider is a cloud: its name, and what it can do. What it cannot do is nil.
type Provider struct {
	Name string
	// Class is the loadBalancerClass by which Services ask for this provider. Services without a class get it too.
	Class string
	// Off lets go of Services that have a load balancer of this provider, and gives no new ones.
	Off bool

	Balancer  Balancer
	Instances Instances
	Routes    Routes
}

// Balancer makes load balancers. Objects that it is given are shared, and must not be changed.
type Balancer interface {
	// Ensure makes the load balancer of a Service as the Service says, with these nodes behind it, and returns where it is. It
	// is called whenever something may have changed, so it must be cheap when nothing has. c has the views of what Triggers
	// names, besides Services and Nodes.
	Ensure(ctx context.Context, c *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus, error)
	// Remove takes it away. That there is none is no error.
	Remove(ctx context.Context, svc *corev1.Service) error
}

// Watcher is a Balancer that depends on more than the Service and which nodes there are.
type Watcher interface {
	Triggers() []control.Trigger
}

// Pending is the error of a load balancer that cannot be before something else changes, of which a Trigger tells. The Service
// has no address until then.
type Pending struct{ Why string }

func (p *Pending) Error() string { return p.Why }

// Later is the error of a load balancer that is being made: it shall be asked for again after a while.
type Later struct {
	After time.Duration
	Why   string
}

func (l *Later) Error() string { return l.Why }

// Instances are the machines of nodes. A node is found by its spec.providerID if it has one, and else by its name.
type Instances interface {
	// Exists says whether there is a machine, be it running or not. If there is none, the Node is deleted.
	Exists(ctx context.Context, node *corev1.Node) (bool, error)
	// Shutdown says whether the machine is switched off.
	Shutdown(ctx context.Context, node *corev1.Node) (bool, error)
	// Metadata is what is known about it; nil if nothing is known yet.
	Metadata(ctx context.Context, node *corev1.Node) (*Metadata, error)
}

// Metadata is what a cloud knows about a machine.
type Metadata struct {
	ProviderID   string
	InstanceType string
	Zone, Region string
	Addresses    []corev1.NodeAddress
	// Labels are put on the Node besides those that follow from the above. They may not be of Kubernetes' own domains.
	Labels map[string]string
}

// Routes are the ways to the Pods of nodes in the cloud's network.
type Routes interface {
	List(ctx context.Context) ([]Route, error)
	// Create makes a route; hint is unique to the node, for its name.
	Create(ctx context.Context, hint string, r Route) error
	Delete(ctx context.Context, r Route) error
}

// Route leads to the Pods of a node.
type Route struct {
	// Name is how the cloud calls it; empty for one that shall be made.
	Name string
	Node string
	// Addresses are those of the node that the route was made with; nil if the cloud does not keep them.
	Addresses   []corev1.NodeAddress
	Destination netip.Prefix
	// Blackhole is a route whose machine is gone.
	Blackhole bool
}

func (r Route) String() string { return fmt.Sprintf("%s %s", r.Name, r.Destination) }

// Controllers are the loops for what a provider has. clusterCIDRs are the networks of Pods: routes elsewhere are not ours.
func Controllers(p Provider, clusterCIDRs []netip.Prefix) (out []control.Controller) {
	if p.Balancer != nil || p.Off {
		out = append(out, services(p))
	}
	if p.Off {
		return out
	}
	if p.Instances != nil {
		out = append(out, nodes(p.Instances), lives(p.Instances))
	}
	if p.Routes != nil {
		out = append(out, routes(p.Routes, clusterCIDRs))
	}
	return out
}
