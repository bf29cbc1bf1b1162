// Package simulate runs simulated nodes: they renew their Leases, and the Pods bound to them go through their phases,
// with the delays and failures of a Behaviour, without any container. Thousands fit into a process, and none needs
// root.
//
// A Node is simulated if it has the annotation proa.dev/simulated; Register creates some, and users may create more.
// What a Pod does follows from its commands and annotations: see behave.go.
//
// Simulated nodes are controllers like those of hop 9, and use their engine: the state of a Pod is computed from the
// object and the time, and nothing is kept.
package simulate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Annotation marks a Node as simulated.
const Annotation = "proa.dev/simulated"

// Controllers returns the controllers: one for the nodes, one for their Pods.
func Controllers(b Behaviour) []control.Controller {
	return []control.Controller{nodes(), pods(b)}
}

// pods is the controller that takes the Pods of simulated nodes through their phases.
func pods(b Behaviour) control.Controller {
	ips := &addresses{taken: map[string]map[string]control.Key{}}
	return control.Controller{
		Name: "simulated-pods", Component: "kubelet", For: gr.Pods, Workers: 16,
		When: func(_, now kind.Object) bool {
			p, ok := now.(*corev1.Pod)
			return ok && p.Spec.NodeName != ""
		},
		Triggers: []control.Trigger{{On: gr.Nodes, Keys: control.PodsOnNode, When: func(old, now kind.Object) bool {
			// A node that is new, or has become simulated, has Pods to run.
			return now != nil && simulated(now) && (old == nil || !simulated(old))
		}}},
		Writes: []control.Write{{On: gr.Pods, Do: "update/status delete"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			pod, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
			if !found {
				return 0, nil
			}
			node, found := control.Get[*corev1.Node](c, gr.Nodes, "", pod.Spec.NodeName)
			if !found || !simulated(node) {
				return 0, nil
			}
			return reconcile(ctx, c, pod, node, b, ips)
		},
	}
}

func simulated(o kind.Object) bool { return o.GetAnnotations()[Annotation] != "" }

func reconcile(ctx context.Context, c *control.Cluster, pod *corev1.Pod, node *corev1.Node, b Behaviour, ips *addresses) (time.Duration,
	error) {
	next := plan(pod, b, time.Now())
	switch {
	case next.gone:
		err := c.Delete(ctx, gr.Pods, pod.Namespace, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil
		}
		return 0, err
	case next.status == nil:
		return next.again, nil
	}
	address(next.status, pod, node, c, ips)
	if apiequality.Semantic.DeepEqual(next.status, &pod.Status) {
		return next.again, nil
	}
	p := pod.DeepCopy()
	p.Status = *next.status
	_, err := c.Update(ctx, gr.Pods, p, "status")
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err == nil && !b.Quiet {
		for _, e := range next.events {
			c.Event(pod, e.kind, e.reason, "%s", e.message)
		}
	}
	return next.again, err
}
