// Package cloud has the controllers of Kubernetes' cloud-controller-manager, with the same Events and conditions: load
// balancers of Services, and the instances and routes of Nodes. A Provider is the interface to the cloud; parts that it does
// not implement have no controller. The package nodeloadbalancer is the provider for clusters without a cloud.
package cloud

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
)

// Provider is a cloud: its name, and the parts that it implements. The others are nil.
type Provider struct {
	Name string
	// Class is the loadBalancerClass by which Services ask for this provider. Services without a class get it too.
	Class string
	// Off makes the controller remove the load balancers of this provider from Services, and create no new ones.
	Off bool

	Balancer  Balancer
	Instances Instances
	Routes    Routes
}

// Balancer creates and deletes load balancers. The objects it gets are shared, and must not be changed.
type Balancer interface {
	// Ensure creates or updates the load balancer of a Service with the given nodes as backends, and returns its addresses. It
	// is called whenever something may have changed, so it must be cheap when nothing has. c has the views of the resources in
	// Triggers, besides Services and Nodes.
	Ensure(ctx context.Context, c *control.Cluster, svc *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus, error)
	// Remove deletes the load balancer of a Service. It is no error if there is none.
	Remove(ctx context.Context, svc *corev1.Service) error
}

// Watcher is a Balancer that depends on more than the Service and the set of nodes.
type Watcher interface {
	Triggers() []control.Trigger
}

// Pending is the error of a load balancer that cannot be created before another object changes, for which there is a
// Trigger. The Service has no address until then.
type Pending struct{ Why string }

func (p *Pending) Error() string { return p.Why }

// Later is the error of a load balancer that is still being created: Ensure shall be called again after a while.
type Later struct {
	After time.Duration
	Why   string
}

func (l *Later) Error() string { return l.Why }

// Instances are the machines of nodes. A machine is found by the node's spec.providerID if it has one, and else by its name.
type Instances interface {
	// Exists reports whether the machine exists, running or not. If it does not, the Node is deleted.
	Exists(ctx context.Context, node *corev1.Node) (bool, error)
	// Shutdown reports whether the machine is switched off.
	Shutdown(ctx context.Context, node *corev1.Node) (bool, error)
	// Metadata returns what the cloud knows about the machine; nil if it knows nothing yet.
	Metadata(ctx context.Context, node *corev1.Node) (*Metadata, error)
}

// Metadata describes a machine of the cloud.
type Metadata struct {
	ProviderID   string
	InstanceType string
	Zone, Region string
	Addresses    []corev1.NodeAddress
	// Labels are put on the Node besides those for the fields above. Labels of Kubernetes' own domains are ignored.
	Labels map[string]string
}

// Routes are the routes in the cloud's network that lead to the Pods of nodes.
type Routes interface {
	List(ctx context.Context) ([]Route, error)
	// Create creates a route. hint is unique to the node, and can be part of the route's name.
	Create(ctx context.Context, hint string, r Route) error
	Delete(ctx context.Context, r Route) error
}

// Route leads to the Pods of a node.
type Route struct {
	// Name is the cloud's name of the route; empty for one that shall be created.
	Name string
	Node string
	// Addresses are the node's addresses when the route was created; nil if the cloud does not keep them.
	Addresses   []corev1.NodeAddress
	Destination netip.Prefix
	// Blackhole is true for a route whose machine no longer exists.
	Blackhole bool
}

func (r Route) String() string { return fmt.Sprintf("%s %s", r.Name, r.Destination) }

// Controllers returns the controllers for the parts that a provider implements. clusterCIDRs are the networks of Pods: routes
// to other networks are left alone.
func Controllers(p Provider, clusterCIDRs []netip.Prefix) (out []control.Controller) {
	if p.Balancer != nil || p.Off {
		out = append(out, serviceController(p))
	}
	if p.Off {
		return out
	}
	if p.Instances != nil {
		out = append(out, nodeController(p.Instances), nodeLifecycleController(p.Instances))
	}
	if p.Routes != nil {
		out = append(out, routeController(p.Routes, clusterCIDRs))
	}
	return out
}
