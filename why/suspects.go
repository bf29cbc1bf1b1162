package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/traffic"
)

// suspects lists the objects that are not obviously well, owners before what they own.
func (r *reader) suspects(ctx context.Context, namespace string) []Target {
	var cluster []Target
	if namespace == "" {
		cluster = r.clusterSuspects(ctx)
	}
	return slices.Concat(cluster, r.appSuspects(ctx, namespace), r.batchSuspects(ctx, namespace), r.podSuspects(ctx, namespace),
		r.trafficSuspects(ctx, namespace), r.customSuspects(ctx, namespace))
}

// suspect lists the objects of a resource that a predicate does not find well, and those that are being deleted.
func suspect[T any](ctx context.Context, r *reader, from schema.GroupResource, kindName, namespace string,
	bad func(*T) bool) (out []Target) {
	items, _ := lookup.List[T](ctx, r.Reader, from, namespace, "")
	for i := range items {
		o, ok := any(&items[i]).(metav1.Object)
		if ok && o.GetName() != "" && (o.GetDeletionTimestamp() != nil || bad(&items[i])) {
			r.Keep(from, o.GetNamespace(), o.GetName(), &items[i])
			out = append(out, Target{Resource: from, Kind: kindName, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	return out
}

// anyObject is the predicate for kinds whose objects do not tell by themselves whether they are well.
func anyObject[T any](*T) bool { return true }

// clusterSuspects lists those that have no namespace.
func (r *reader) clusterSuspects(ctx context.Context) []Target {
	return slices.Concat(
		suspect(ctx, r, gr.Nodes, "Node", "", func(n *corev1.Node) bool {
			c := nodeCondition(n, corev1.NodeReady)
			renewed := r.lastRenewal(ctx, n.Name)
			return c == nil || c.Status != corev1.ConditionTrue || isShort(n) || !renewed.IsZero() && r.Now.Sub(renewed) > staleLease
		}),
		suspect(ctx, r, gr.Namespaces, "Namespace", "", func(*corev1.Namespace) bool { return false }),
		suspect(ctx, r, gr.CertificateSigningRequests, "CertificateSigningRequest", "",
			func(c *certificatesv1.CertificateSigningRequest) bool { return len(c.Status.Certificate) == 0 }),
		suspect(ctx, r, gr.PersistentVolumes, "PersistentVolume", "", func(v *corev1.PersistentVolume) bool {
			return v.Status.Phase == corev1.VolumeFailed || v.Status.Phase == corev1.VolumeReleased
		}))
}

// appSuspects lists workloads that keep Pods running.
func (r *reader) appSuspects(ctx context.Context, namespace string) []Target {
	return slices.Concat(
		suspect(ctx, r, gr.Deployments, "Deployment", namespace, func(d *appsv1.Deployment) bool {
			return d.Status.ObservedGeneration < d.Generation || d.Spec.Replicas != nil &&
				(d.Status.ReadyReplicas < *d.Spec.Replicas || !deploymentRolledOut(d, *d.Spec.Replicas))
		}),
		suspect(ctx, r, gr.StatefulSets, "StatefulSet", namespace, func(s *appsv1.StatefulSet) bool {
			return s.Status.ObservedGeneration < s.Generation || s.Spec.Replicas != nil &&
				(s.Status.ReadyReplicas < *s.Spec.Replicas || s.Status.UpdatedReplicas < *s.Spec.Replicas)
		}),
		suspect(ctx, r, gr.DaemonSets, "DaemonSet", namespace, func(s *appsv1.DaemonSet) bool {
			return s.Status.ObservedGeneration < s.Generation || s.Status.NumberReady < s.Status.DesiredNumberScheduled
		}),
		suspect(ctx, r, gr.ReplicaSets, "ReplicaSet", namespace, func(s *appsv1.ReplicaSet) bool {
			return metav1.GetControllerOfNoCopy(s) == nil && s.Spec.Replicas != nil && s.Status.ReadyReplicas < *s.Spec.Replicas
		}),
		suspect(ctx, r, gr.ReplicationControllers, "ReplicationController", namespace, func(c *corev1.ReplicationController) bool {
			return metav1.GetControllerOfNoCopy(c) == nil && c.Spec.Replicas != nil && c.Status.ReadyReplicas < *c.Spec.Replicas
		}))
}

// batchSuspects lists what makes Pods that end.
func (r *reader) batchSuspects(ctx context.Context, namespace string) []Target {
	return slices.Concat(
		suspect(ctx, r, gr.CronJobs, "CronJob", namespace, anyObject[batchv1.CronJob]),
		suspect(ctx, r, gr.Jobs, "Job", namespace, func(j *batchv1.Job) bool {
			return !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
			})
		}))
}

// podSuspects lists Pods, and what scales and stores for them.
func (r *reader) podSuspects(ctx context.Context, namespace string) []Target {
	return slices.Concat(
		suspect(ctx, r, gr.Pods, "Pod", namespace, func(p *corev1.Pod) bool {
			c := lookup.PodCondition(p, corev1.PodReady)
			return p.Status.Phase != corev1.PodSucceeded && !isReplaced(p) && (c == nil || c.Status != corev1.ConditionTrue)
		}),
		suspect(ctx, r, gr.HorizontalPodAutoscalers, "HorizontalPodAutoscaler", namespace,
			anyObject[autoscalingv2.HorizontalPodAutoscaler]),
		suspect(ctx, r, gr.PersistentVolumeClaims, "PersistentVolumeClaim", namespace, func(c *corev1.PersistentVolumeClaim) bool {
			return c.Status.Phase != corev1.ClaimBound
		}))
}

// trafficSuspects lists what leads traffic to Pods. Clusters without the Gateway API do not have the routes.
func (r *reader) trafficSuspects(ctx context.Context, namespace string) []Target {
	return slices.Concat(
		suspect(ctx, r, traffic.Ingresses(), "Ingress", namespace, anyObject[networkingv1.Ingress]),
		suspect(ctx, r, traffic.GatewayResource("httproutes"), "HTTPRoute", namespace, anyObject[traffic.Route]),
		suspect(ctx, r, traffic.GatewayResource("grpcroutes"), "GRPCRoute", namespace, anyObject[traffic.Route]),
		suspect(ctx, r, traffic.GatewayResource("tlsroutes"), "TLSRoute", namespace, anyObject[traffic.Route]),
		suspect(ctx, r, traffic.GatewayResource("gateways"), "Gateway", namespace, anyObject[traffic.Gateway]),
		suspect(ctx, r, gr.Services, "Service", namespace, func(s *corev1.Service) bool {
			return len(s.Spec.Selector) > 0 || s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
		}))
}

// The bounds of how many custom resources, and how many of their objects, are looked at.
const (
	maxCustomResources = 50
	maxCustomObjects   = 2000
)

// customSuspects lists objects of custom resources whose conditions say that something is wrong, as far as the bounds allow.
func (r *reader) customSuspects(ctx context.Context, namespace string) (out []Target) {
	known := explainers()
	served := slices.DeleteFunc(r.CustomResources(ctx), func(x metav1.APIResource) bool {
		return known[schema.GroupResource{Group: x.Group, Resource: x.Name}] != nil || namespace != "" && !x.Namespaced
	})
	left := maxCustomObjects
	var leftOut, forbidden []string
	for i := range served {
		on := schema.GroupResource{Group: served[i].Group, Resource: served[i].Name}
		if i >= maxCustomResources || left <= 0 {
			leftOut = append(leftOut, on.String())
			continue
		}
		items, err := lookup.TryList[lookup.Conditioned](ctx, r.Reader, on, namespace, "")
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, on.String())
			continue
		case err != nil:
			r.CannotSee(on.String(), err)
			continue
		case len(items) > left:
			leftOut = append(leftOut, fmt.Sprintf("%d of %d %s", len(items)-left, len(items), on))
		}
		checked := 0
		out = append(out, suspect(ctx, r, on, served[i].Kind, namespace, func(o *lookup.Conditioned) bool {
			checked++
			return checked <= left && customSuspect(o)
		})...)
		left -= len(items)
	}
	if n := len(forbidden); n > 0 {
		r.CannotSee("custom objects ("+answer.Shorten(strings.Join(forbidden, ", "))+")",
			apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	}
	if n := len(leftOut); n > 0 {
		r.CannotSee("custom objects that were not looked at ("+answer.Shorten(strings.Join(leftOut, ", "))+")",
			fmt.Errorf("the bounds are %d resources and %d objects", maxCustomResources, maxCustomObjects))
	}
	return out
}

// customSuspect tells whether an object says by the conventions of the API that something is wrong with it.
func customSuspect(o *lookup.Conditioned) bool {
	o.ReadStatus()
	a := &Answer{State: Stuck}
	judgeConditions(a, o.Conditions)
	return a.Cause != "" && a.State == Stuck || isOneOf(o.Phase, failedPhases) ||
		o.ObservedGeneration != nil && *o.ObservedGeneration < o.Generation
}
