// Package namespace empties namespaces that are being deleted, pods first, and lets them go when nothing is left.
package namespace

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
)

// Controller returns the loop. resources are those that live in namespaces and can be deleted. Views of them are
// opened only when a namespace is deleted: most clusters never delete one.
func Controller(resources func() []schema.GroupResource, open func(context.Context, schema.GroupResource) (client.View, error)) control.Controller {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	return control.Controller{
		Name: "namespace-controller", For: namespaces, Reads: []schema.GroupResource{control.Any()}, Workers: 4,
		Writes: []control.Write{{On: namespaces, Do: "update/status update/finalize"}, {On: control.Any(), Do: "deletecollection"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			o, found := c.View(namespaces).Get("", k.Name)
			if !found || o.GetDeletionTimestamp() == nil {
				return 0, nil
			}
			ns := o.(*corev1.Namespace).DeepCopy()
			if len(ns.Spec.Finalizers) == 0 {
				return 0, nil
			}
			return reconcile(ctx, c, ns, resources(), open)
		},
	}
}

// left is what remains of one resource in a namespace.
type left struct {
	resource   schema.GroupResource
	objects    int
	finalizers map[string]int
	wait       time.Duration // the longest grace of an object that is on its way
}

func reconcile(ctx context.Context, c *control.Cluster, ns *corev1.Namespace, resources []schema.GroupResource,
	open func(context.Context, schema.GroupResource) (client.View, error),
) (time.Duration, error) {
	var remains []left
	var failures []error
	background := metav1.DeletePropagationBackground
	empty := func(gr schema.GroupResource) {
		v, err := open(ctx, gr)
		if err != nil {
			failures = append(failures, err)
			return
		}
		l := left{resource: gr, finalizers: map[string]int{}}
		for range v.List(ns.Name) {
			l.objects++
		}
		if l.objects == 0 {
			return
		}
		err = c.DeleteAll(ctx, gr, ns.Name, metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, err)
		}
		if v, err = open(ctx, gr); err != nil { // a fresh look
			failures = append(failures, err)
			return
		}
		l.objects = 0
		for o := range v.List(ns.Name) {
			l.objects++
			for _, f := range o.GetFinalizers() {
				l.finalizers[f]++
			}
			if g := o.GetDeletionGracePeriodSeconds(); g != nil {
				l.wait = max(l.wait, time.Duration(*g)*time.Second)
			}
		}
		if l.objects > 0 {
			remains = append(remains, l)
		}
	}
	// Pods go first: what protects or limits them must not vanish while they run.
	pods := schema.GroupResource{Resource: "pods"}
	if slices.Contains(resources, pods) {
		empty(pods)
	}
	if len(remains) == 0 && len(failures) == 0 {
		for _, gr := range resources {
			if gr != pods {
				empty(gr)
			}
		}
	}
	conditions := describe(remains, failures, ns.Status.Conditions, metav1.Now())
	if changed(conditions, ns.Status.Conditions) {
		ns.Status.Conditions = conditions
		updated, err := c.Update(ctx, schema.GroupResource{Resource: "namespaces"}, ns, "status")
		if err != nil {
			return 0, ignoreGone(err)
		}
		ns = updated.(*corev1.Namespace)
	}
	if len(failures) > 0 {
		return 0, failures[0]
	}
	if len(remains) > 0 {
		return again(remains), nil
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err := c.Update(ctx, schema.GroupResource{Resource: "namespaces"}, ns, "finalize")
	return 0, ignoreGone(err)
}

// again says when to look at what remains: nothing tells the loop about objects of other kinds.
func again(remains []left) time.Duration {
	wait := time.Second
	for _, l := range remains {
		if l.wait > 0 {
			wait = min(l.wait/2+time.Second, 5*time.Second)
		}
	}
	return wait
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
