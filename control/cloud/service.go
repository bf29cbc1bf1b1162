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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// finalizer keeps a Service until its load balancer is deleted.
	finalizer = "service.kubernetes.io/load-balancer-cleanup"
	// ProviderAnnotation is the annotation with the name of the provider that a Service has its load balancer from. Other load balancer
	// controllers use the same finalizer, so that the finalizer alone does not tell.
	ProviderAnnotation = gr.LoadBalancerAnnotation
	// toBeDeletedTaint is the taint of nodes that an autoscaler is about to delete.
	toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"
)

// serviceController returns the controller that gives Services of type LoadBalancer a load balancer of the provider.
func serviceController(p Provider) control.Controller {
	l := &serviceReconciler{Provider: p}
	out := control.Controller{
		Name: "service-controller", For: gr.Services, Workers: 4, When: isRelevantServiceChange,
		Triggers:  []control.Trigger{{On: gr.Nodes, Keys: l.servicesWithBalancer, When: changesBackends}},
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

// serviceReconciler is the state of the service controller.
type serviceReconciler struct {
	Provider
	events EventFilter
}

// Wants reports whether a Service shall have a load balancer of the provider.
func (p Provider) Wants(svc *corev1.Service) bool {
	class := svc.Spec.LoadBalancerClass
	return !p.Off && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && (class == nil || *class == p.Class) && svc.DeletionTimestamp == nil
}

// hasBalancer reports whether a Service has a load balancer of the provider, judging by its annotation or its finalizer.
func (p Provider) hasBalancer(svc *corev1.Service) bool {
	if svc.Annotations[ProviderAnnotation] == p.Name {
		return true
	}
	isDefault := svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil
	return !p.Off && isDefault && slices.Contains(svc.Finalizers, finalizer)
}

// isRelevantServiceChange ignores changes that do not concern load balancers.
func isRelevantServiceChange(old, now kind.Object) bool {
	a, ok := old.(*corev1.Service)
	b, ok2 := now.(*corev1.Service)
	if !ok || !ok2 {
		return ok2
	}
	same := apiequality.Semantic.DeepEqual
	return !same(a.Spec, b.Spec) || !same(a.Status.LoadBalancer, b.Status.LoadBalancer) || !same(a.Finalizers, b.Finalizers) ||
		!same(a.Annotations, b.Annotations) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
}

// changesBackends reports whether a change of a node changes the backends of load balancers.
func changesBackends(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	if a == nil || b == nil {
		return true
	}
	return isBackend(a) != isBackend(b) || a.Spec.ProviderID != b.Spec.ProviderID
}

// isBackend reports whether a node may be a backend of load balancers.
func isBackend(n *corev1.Node) bool {
	if v, has := n.Labels[corev1.LabelNodeExcludeBalancers]; has {
		if out, err := strconv.ParseBool(v); err != nil || out {
			return false
		}
	}
	return n.DeletionTimestamp == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == toBeDeletedTaint })
}

// servicesWithBalancer yields the Services that shall have a load balancer.
func (l *serviceReconciler) servicesWithBalancer(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for svc := range control.List[*corev1.Service](c, gr.Services, "") {
			if l.Wants(svc) && !yield(control.KeyOf(svc)) {
				return
			}
		}
	}
}

func (l *serviceReconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	svc, found := control.Get[*corev1.Service](c, gr.Services, k.Namespace, k.Name)
	switch {
	case !found:
		return 0, nil
	case l.Wants(svc):
		return l.ensure(ctx, c, svc)
	case l.hasBalancer(svc):
		return 0, l.remove(ctx, c, svc)
	}
	return 0, nil
}

func keyText(k control.Key) string { return k.Namespace + "/" + k.Name }

// ensure creates or updates the load balancer of a Service. It first adds the finalizer, so that the Service is not deleted
// before its load balancer is.
func (l *serviceReconciler) ensure(ctx context.Context, c *control.Cluster, svc *corev1.Service) (time.Duration, error) {
	if !slices.Contains(svc.Finalizers, finalizer) || svc.Annotations[ProviderAnnotation] != l.Name {
		c.Event(svc, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
		marked, err := l.addFinalizer(ctx, c, svc)
		if err != nil || marked == nil {
			return 0, control.IgnoreNotFound(err)
		}
		svc = marked
	}
	var behind []*corev1.Node
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		if isBackend(n) {
			behind = append(behind, n)
		}
	}
	slices.SortFunc(behind, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	status, err := l.Balancer.Ensure(ctx, c, svc, behind)
	if err != nil {
		return l.handleEnsureError(ctx, c, svc, err)
	}
	const noNodes = "There are no available nodes for LoadBalancer"
	if len(status.Ingress) > 0 {
		l.events.IsNew(keyText(control.KeyOf(svc)), "")
	} else if l.events.IsNew(keyText(control.KeyOf(svc)), noNodes) {
		c.Event(svc, corev1.EventTypeWarning, "UnAvailableLoadBalancer", noNodes)
	}
	changed, err := writeStatus(ctx, c, svc, status)
	switch {
	case err != nil || !changed:
		return 0, control.IgnoreNotFound(err)
	case len(status.Ingress) == 0:
	case len(svc.Status.LoadBalancer.Ingress) == 0:
		c.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	default:
		c.Event(svc, corev1.EventTypeNormal, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
	}
	return 0, nil
}

// addFinalizer adds the finalizer and the annotation of the provider to a Service.
func (l *serviceReconciler) addFinalizer(ctx context.Context, c *control.Cluster, svc *corev1.Service) (*corev1.Service, error) {
	next := svc.DeepCopy()
	if !slices.Contains(next.Finalizers, finalizer) {
		next.Finalizers = append(next.Finalizers, finalizer)
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[ProviderAnnotation] = l.Name
	o, err := c.Update(ctx, gr.Services, next, "")
	marked, _ := o.(*corev1.Service)
	return marked, err
}

// handleEnsureError records an Event about an error of Ensure, and returns when to retry.
func (l *serviceReconciler) handleEnsureError(ctx context.Context, c *control.Cluster, svc *corev1.Service, err error) (time.Duration,
	error) {
	if l.events.IsNew(keyText(control.KeyOf(svc)), err.Error()) {
		c.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to ensure load balancer: %v",
			err)
	}
	if later, ok := errors.AsType[*Later](err); ok {
		return later.After, nil
	}
	if _, ok := errors.AsType[*Pending](err); ok {
		_, err = writeStatus(ctx, c, svc, corev1.LoadBalancerStatus{})
		return 0, control.IgnoreNotFound(err)
	}
	return 0, err
}

// writeStatus writes the addresses of the load balancer into the status of its Service, if they differ.
func writeStatus(ctx context.Context, c *control.Cluster, svc *corev1.Service, status corev1.LoadBalancerStatus) (changed bool, err error) {
	status = *status.DeepCopy()
	for i := range status.Ingress {
		// Defaulting sets IPMode in stored objects: without it the comparison below would always find a difference.
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

// remove deletes the load balancer of a Service, and then the status, annotation and finalizer that ensure has written.
func (l *serviceReconciler) remove(ctx context.Context, c *control.Cluster, svc *corev1.Service) error {
	c.Event(svc, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	if l.Balancer != nil {
		if err := l.Balancer.Remove(ctx, svc); err != nil {
			c.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed",
				"Error syncing load balancer: failed to delete load balancer: %v", err)
			return err
		}
	}
	next := svc.DeepCopy()
	// The status of a Service of another class was written by another controller, and is kept.
	foreign := svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass != nil &&
		*svc.Spec.LoadBalancerClass != l.Class
	if svc.DeletionTimestamp == nil && !foreign && len(svc.Status.LoadBalancer.Ingress) > 0 {
		next.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		o, err := c.Update(ctx, gr.Services, next, "status")
		written, ok := o.(*corev1.Service)
		if err != nil || !ok {
			return control.IgnoreNotFound(err)
		}
		next = written.DeepCopy()
	}
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	delete(next.Annotations, ProviderAnnotation)
	if _, err := c.Update(ctx, gr.Services, next, ""); err != nil {
		return control.IgnoreNotFound(err)
	}
	l.events.IsNew(keyText(control.KeyOf(svc)), "")
	c.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}
