package cloud

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	// finalizer keeps a Service until its load balancer is gone.
	finalizer = "service.kubernetes.io/load-balancer-cleanup"
	// Mark is the annotation that says which provider a Service has its load balancer from. Others use the same finalizer; by
	// this one we know which is ours.
	Mark = gr.LoadBalancerMark
	// leaving is the taint of nodes that an autoscaler is about to delete.
	leaving = "ToBeDeletedByClusterAutoscaler"
)

// services gives Services of type LoadBalancer a load balancer of the provider.
func services(p Provider) control.Controller {
	l := &balancing{Provider: p}
	out := control.Controller{
		Name: "service-controller", For: gr.Services, Workers: 4, When: serviceMatters,
		Triggers:  []control.Trigger{{On: gr.Nodes, Keys: l.balanced, When: nodeMatters}},
		Writes:    []control.Write{{On: gr.Services, Do: "update update/status"}},
		Reconcile: l.reconcile,
	}
	if p.Off {
		out.Triggers = nil
	} else if w, ok := p.Balancer.(Watcher); ok {
		out.Triggers = append(out.Triggers, w.Triggers()...)
	}
	return out
}

type balancing struct {
	Provider
	told Once
}

// Wants says that a Service shall have a load balancer of the provider.
func (p Provider) Wants(svc *corev1.Service) bool {
	class := svc.Spec.LoadBalancerClass
	return !p.Off && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == p.Class) && svc.DeletionTimestamp == nil
}

// has says that a Service has a load balancer of the provider, as far as the Service tells.
func (p Provider) has(svc *corev1.Service) bool {
	if svc.Annotations[Mark] == p.Name {
		return true
	}
	mine := svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil
	return !p.Off && mine && slices.Contains(svc.Finalizers, finalizer)
}

// serviceMatters leaves out changes that are not about load balancers.
func serviceMatters(old, now kind.Object) bool {
	a, ok := old.(*corev1.Service)
	b, ok2 := now.(*corev1.Service)
	if !ok || !ok2 {
		return ok2
	}
	same := apiequality.Semantic.DeepEqual
	return !same(a.Spec, b.Spec) || !same(a.Status.LoadBalancer, b.Status.LoadBalancer) || !same(a.Finalizers, b.Finalizers) ||
		!same(a.Annotations, b.Annotations) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
}

// nodeMatters says that the nodes behind load balancers have changed.
func nodeMatters(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	if a == nil || b == nil {
		return true
	}
	return balances(a) != balances(b) || a.Spec.ProviderID != b.Spec.ProviderID
}

// balances says that a node may be behind load balancers.
func balances(n *corev1.Node) bool {
	if v, has := n.Labels[corev1.LabelNodeExcludeBalancers]; has {
		if out, err := strconv.ParseBool(v); err != nil || out {
			return false
		}
	}
	return n.DeletionTimestamp == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == leaving })
}

// balanced are the Services that have, or want, a load balancer.
func (l *balancing) balanced(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for svc := range control.List[*corev1.Service](c, gr.Services, "") {
			if l.Wants(svc) && !yield(control.KeyOf(svc)) {
				return
			}
		}
	}
}

func (l *balancing) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	svc, found := control.Get[*corev1.Service](c, gr.Services, k.Namespace, k.Name)
	switch {
	case !found:
		return 0, nil
	case l.Wants(svc):
		return l.ensure(ctx, c, svc)
	case l.has(svc):
		return 0, l.remove(ctx, c, svc)
	}
	return 0, nil
}

func name(k control.Key) string { return k.Namespace + "/" + k.Name }

// ensure makes a load balancer, or what has changed of it. First the Service is marked, so that it does not go without us.
func (l *balancing) ensure(ctx context.Context, c *control.Cluster, svc *corev1.Service) (time.Duration, error) {
	if !slices.Contains(svc.Finalizers, finalizer) || svc.Annotations[Mark] != l.Name {
		c.Event(svc, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
		marked, err := l.mark(ctx, c, svc)
		if err != nil || marked == nil {
			return 0, control.Gone(err)
		}
		svc = marked
	}
	var behind []*corev1.Node
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		if balances(n) {
			behind = append(behind, n)
		}
	}
	slices.SortFunc(behind, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	status, err := l.Balancer.Ensure(ctx, c, svc, behind)
	if err != nil {
		return l.failed(ctx, c, svc, err)
	}
	const nobody = "There are no available nodes for LoadBalancer"
	if len(status.Ingress) > 0 {
		l.told.New(name(control.KeyOf(svc)), "")
	} else if l.told.New(name(control.KeyOf(svc)), nobody) {
		c.Event(svc, corev1.EventTypeWarning, "UnAvailableLoadBalancer", nobody)
	}
	changed, err := publish(ctx, c, svc, status)
	switch {
	case err != nil || !changed:
		return 0, control.Gone(err)
	case len(status.Ingress) == 0:
	case len(svc.Status.LoadBalancer.Ingress) == 0:
		c.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	default:
		c.Event(svc, corev1.EventTypeNormal, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
	}
	return 0, nil
}

func (l *balancing) mark(ctx context.Context, c *control.Cluster, svc *corev1.Service) (*corev1.Service, error) {
	next := svc.DeepCopy()
	if !slices.Contains(next.Finalizers, finalizer) {
		next.Finalizers = append(next.Finalizers, finalizer)
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[Mark] = l.Name
	o, err := c.Update(ctx, gr.Services, next, "")
	marked, _ := o.(*corev1.Service)
	return marked, err
}

// failed tells people why there is no load balancer, or no longer the right one.
func (l *balancing) failed(ctx context.Context, c *control.Cluster, svc *corev1.Service, err error) (time.Duration, error) {
	if l.told.New(name(control.KeyOf(svc)), err.Error()) {
		c.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to ensure load balancer: %v", err)
	}
	if later, ok := errors.AsType[*Later](err); ok {
		return later.After, nil
	}
	if _, ok := errors.AsType[*Pending](err); ok {
		_, err = publish(ctx, c, svc, corev1.LoadBalancerStatus{})
		return 0, control.Gone(err)
	}
	return 0, err
}

// publish writes where the load balancer is, if that is not there yet.
func publish(ctx context.Context, c *control.Cluster, svc *corev1.Service, status corev1.LoadBalancerStatus) (changed bool, err error) {
	status = *status.DeepCopy()
	for i := range status.Ingress {
		// What is stored has this, and would differ from what has not, for ever.
		if in := &status.Ingress[i]; in.IP != "" && in.IPMode == nil {
			in.IPMode = new(corev1.LoadBalancerIPModeVIP)
		}
	}
	if apiequality.Semantic.DeepEqual(svc.Status.LoadBalancer.Ingress, status.Ingress) {
		return false, nil
	}
	next := svc.DeepCopy()
	next.Status.LoadBalancer = status
	_, err = c.Update(ctx, gr.Services, next, "status")
	return err == nil, err
}

// remove takes the load balancer of a Service away, and what we have written into the Service.
func (l *balancing) remove(ctx context.Context, c *control.Cluster, svc *corev1.Service) error {
	c.Event(svc, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	if l.Balancer != nil {
		if err := l.Balancer.Remove(ctx, svc); err != nil {
			c.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to delete load balancer: %v", err)
			return err
		}
	}
	next := svc.DeepCopy()
	// What a load balancer of another class has written is not ours to take away.
	foreign := svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass != nil && *svc.Spec.LoadBalancerClass != l.Class
	if svc.DeletionTimestamp == nil && !foreign && len(svc.Status.LoadBalancer.Ingress) > 0 {
		next.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		o, err := c.Update(ctx, gr.Services, next, "status")
		written, ok := o.(*corev1.Service)
		if err != nil || !ok {
			return control.Gone(err)
		}
		next = written.DeepCopy()
	}
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	delete(next.Annotations, Mark)
	if _, err := c.Update(ctx, gr.Services, next, ""); err != nil {
		return control.Gone(err)
	}
	l.told.New(name(control.KeyOf(svc)), "")
	c.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}
