// Package initialobjects creates the objects that every cluster begins with: namespaces, the RBAC policy, priority
// classes, and what else the server says.
package initialobjects

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz/bootstrappolicy"
	"proa.dev/server/state"
)

// Settings are what the initial objects of a cluster depend on.
type Settings struct {
	// ServiceCIDRs are the ranges of cluster IPs, at most one of each IP family.
	ServiceCIDRs []netip.Prefix
	// Policy is the RBAC policy that every cluster has.
	Policy *bootstrappolicy.Policy
	// Objects are further objects, which are created when they do not exist.
	Objects []Object
}

// Object is an initial object.
type Object struct {
	Resource schema.GroupResource
	Object   kind.Object
}

// Create creates the initial objects that do not exist, and brings the RBAC policy up to date. Servers that start together do so at the
// same time: one whose write was overtaken by that of another looks again at what is left to do.
func Create(ctx context.Context, c client.Client, rbac *state.RBACView, s Settings) (err error) {
	pauses := wait.Backoff{First: 10 * time.Millisecond, Max: time.Second, Jitter: 0.5}
	for range attempts {
		err = create(ctx, c, rbac, s)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
		if pauses.Sleep(ctx) != nil {
			return err
		}
	}
	return err
}

// attempts is how often a server looks again that was overtaken.
const attempts = 10

func create(ctx context.Context, c client.Client, rbac *state.RBACView, s Settings) error {
	var first []Object
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		first = append(first, Object{schema.GroupResource{Resource: "namespaces"},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}})
	}
	first = append(first, serviceCIDR(s))
	if err := createAll(ctx, c, first); err != nil {
		return err
	}
	if err := markServiceCIDRReady(ctx, c); err != nil {
		return err
	}
	policy, err := reconcilePolicy(ctx, c, rbac, s.Policy)
	if err != nil {
		return err
	}
	return createAll(ctx, c, slices.Concat(s.Objects, policy, criticalClasses()))
}

// reconcilePolicy changes the roles and bindings that exist, and returns those to be created.
func reconcilePolicy(ctx context.Context, c client.Client, rbac *state.RBACView, want *bootstrappolicy.Policy) (missing []Object,
	err error) {
	if err := rbac.Wait(ctx); err != nil {
		return nil, err
	}
	steps := bootstrappolicy.Reconcile(rbac, want)
	var changes []func() error
	missing, changes = applySteps(ctx, c, missing, changes, "clusterroles", steps.ClusterRoles)
	missing, changes = applySteps(ctx, c, missing, changes, "clusterrolebindings", steps.ClusterRoleBindings)
	missing, changes = applySteps(ctx, c, missing, changes, "roles", steps.Roles)
	missing, changes = applySteps(ctx, c, missing, changes, "rolebindings", steps.RoleBindings)
	return missing, inOrder(changes)
}

// inOrder makes changes until one fails.
func inOrder(changes []func() error) error {
	for _, change := range changes {
		if err := change(); err != nil {
			return err
		}
	}
	return nil
}

// applySteps adds the steps that reconcile the RBAC policy to the objects to be created and the changes to be made.
func applySteps[T any, P interface {
	*T
	kind.Object
}](ctx context.Context, c client.Client, rest []Object, changes []func() error, resource string, steps []bootstrappolicy.Step[P]) ([]Object,
	[]func() error) {
	gr := state.RBACResource(resource)
	for _, st := range steps {
		switch st.Op {
		case bootstrappolicy.Create:
			rest = append(rest, Object{gr, st.Object})
		case bootstrappolicy.Update:
			changes = append(changes, func() error { _, err := c.Update(ctx, gr, st.Object, ""); return err })
		case bootstrappolicy.Recreate:
			changes = append(changes, func() error {
				if err := c.Delete(ctx, gr, st.Object.GetNamespace(), st.Object.GetName(), metav1.DeleteOptions{}); err != nil &&
					!apierrors.IsNotFound(err) {
					return err
				}
				_, err := c.Create(ctx, gr, st.Object)
				return err
			})
		}
	}
	return rest, changes
}

// createAll creates objects in parallel, so that they share the writes to the disk. Objects that exist are left alone.
func createAll(ctx context.Context, c client.Client, all []Object) error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	seats := make(chan struct{}, 16)
	views := map[schema.GroupResource]client.View{}
	for _, s := range all {
		if views[s.Resource] == nil {
			v, err := c.View(ctx, s.Resource)
			if err != nil {
				return err
			}
			views[s.Resource] = v
		}
	}
	for i, s := range all {
		if _, found := views[s.Resource].Get(s.Object.GetNamespace(), s.Object.GetName()); found {
			continue
		}
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			err := retryWhileBusy(ctx, func() error {
				_, err := c.Create(ctx, s.Resource, s.Object.DeepCopyObject().(kind.Object))
				return err
			})
			if err == nil {
				return
			}
			// Another server may have created it meanwhile. For a Service this one is then told that its cluster IP is taken.
			if _, missing := c.Get(ctx, s.Resource, s.Object.GetNamespace(), s.Object.GetName(), ""); missing != nil {
				errs[i] = fmt.Errorf("create %s %s: %w", s.Resource, s.Object.GetName(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// retryWhileBusy calls try until the server is no longer too busy to answer, at most 11 times.
func retryWhileBusy(ctx context.Context, try func() error) error {
	pauses := wait.Backoff{First: 100 * time.Millisecond, Max: 1600 * time.Millisecond}
	for n := 0; ; n++ {
		err := try()
		if n == 10 || (!apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err)) {
			return err
		}
		if err := pauses.Sleep(ctx); err != nil {
			return err
		}
	}
}

// criticalClasses returns the two priority classes of the system.
func criticalClasses() []Object {
	const critical = 2_000_000_000 // higher than users may choose
	gr := schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}
	return []Object{
		{gr, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: critical + 1000,
			Description: "Used for system critical pods that must not be moved from their current node.",
		}},
		{gr, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: critical,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		}},
	}
}

// serviceCIDR returns the ServiceCIDR of the ranges of cluster IPs.
func serviceCIDR(s Settings) Object {
	o := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, p := range s.ServiceCIDRs {
		o.Spec.CIDRs = append(o.Spec.CIDRs, p.String())
	}
	return Object{schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}, o}
}

// markServiceCIDRReady sets the condition Ready of the default ServiceCIDR, whose addresses are allocated from the
// beginning.
func markServiceCIDRReady(ctx context.Context, c client.Client) error {
	gr := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	v, err := c.View(ctx, gr)
	if err != nil {
		return err
	}
	have, found := v.Get("", "kubernetes")
	if !found {
		return nil
	}
	o := have.DeepCopyObject().(*networkingv1.ServiceCIDR)
	if len(o.Status.Conditions) > 0 || o.DeletionTimestamp != nil {
		return nil
	}
	o.Status.Conditions = []metav1.Condition{{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: "Kubernetes default Service CIDR is ready",
	}}
	_, err = c.Update(ctx, gr, o, "status")
	return err
}
