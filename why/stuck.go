package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// explainer explains one object of a kind.
type explainer func(*reader, context.Context, Target) (*Answer, error)

// explainers are the kinds of which more is known than the conventions of the API.
func explainers() map[schema.GroupResource]explainer {
	return map[schema.GroupResource]explainer{
		gr.Pods: (*reader).pod, gr.Nodes: (*reader).node, gr.PersistentVolumeClaims: (*reader).claim, gr.Namespaces: (*reader).namespace,
		gr.Deployments: (*reader).deployment, gr.ReplicaSets: (*reader).replicaSet, gr.StatefulSets: (*reader).statefulSet,
		gr.DaemonSets: (*reader).daemonSet,
		gr.Jobs:       (*reader).job, gr.CronJobs: (*reader).cronJob, gr.HorizontalPodAutoscalers: (*reader).autoscaler,
		gr.Services: (*reader).service, ingresses(): (*reader).ingress,
		gatewayResource("gateways"): (*reader).explainGateway, gatewayResource("httproutes"): (*reader).explainRoute,
		gatewayResource("grpcroutes"): (*reader).explainRoute, gatewayResource("tlsroutes"): (*reader).explainRoute,
		gr.CertificateSigningRequests: (*reader).signingRequest,
	}
}

// resourceOf returns the resource of a kind that may be the cause of an answer about another object.
func resourceOf(kindName string) (schema.GroupResource, bool) {
	on, known := map[string]schema.GroupResource{
		"Pod": gr.Pods, "Node": gr.Nodes, "PersistentVolumeClaim": gr.PersistentVolumeClaims, "Service": gr.Services, "Job": gr.Jobs,
		"ReplicaSet": gr.ReplicaSets, "Gateway": gatewayResource("gateways"),
	}[kindName]
	return on, known
}

// maxStuck bounds the answers of Stuck.
const maxStuck = 1000

// Stuck explains everything of a namespace, or of the cluster, that is stuck. Pods that a stuck workload was explained by, and
// ReplicaSets of Deployments, are not repeated.
func (k *Asker) Stuck(ctx context.Context, namespace string) (answers []*Answer, unseen []string) {
	r := k.reader()
	r.AllEvents = true
	if namespace == "" { // one request for all namespaces in place of one for each
		lookup.List[corev1.Event](ctx, r.Reader, gr.Events, "", "")
		lookup.List[discoveryv1.EndpointSlice](ctx, r.Reader, gr.EndpointSlices, "", "")
	}
	explained := map[Ref]bool{}
	left := 0
	add := func(t Target) {
		if explained[t.ref()] {
			return
		}
		if len(answers) >= maxStuck {
			left++
			return
		}
		a, err := r.explain(ctx, t)
		if err != nil {
			r.CannotSee(t.Resource.String()+" "+t.Namespace+"/"+t.Name, err)
			return
		}
		if a.State != Stuck && a.State != Unknown {
			return
		}
		for at := a; at != nil; at = at.Through {
			explained[at.Object] = true
		}
		answers = append(answers, a)
	}
	for _, t := range r.suspects(ctx, namespace) {
		add(t)
	}
	slices.SortStableFunc(answers, func(a, b *Answer) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Kind, b.Object.Kind),
			cmp.Compare(a.Object.Name, b.Object.Name))
	})
	unseen = r.unseen()
	if left > 0 {
		unseen = append(unseen, fmt.Sprintf("%s that may be stuck as well: these are already %d answers",
			answer.Plural(left, "object"), maxStuck))
	}
	return answers, unseen
}

// suspects lists the objects that are not obviously well, owners before what they own.
func (r *reader) suspects(ctx context.Context, namespace string) (out []Target) {
	if namespace == "" {
		out = append(out, suspect(ctx, r, gr.Nodes, "Node", "", nodeSuspect)...)
		out = append(out, suspect(ctx, r, gr.Namespaces, "Namespace", "",
			func(n *corev1.Namespace) bool { return n.DeletionTimestamp != nil })...)
		out = append(out, suspect(ctx, r, gr.CertificateSigningRequests, "CertificateSigningRequest", "",
			func(c *certificatesv1.CertificateSigningRequest) bool {
				return len(c.Status.Certificate) == 0
			})...)
	}
	out = append(out, suspect(ctx, r, gr.Deployments, "Deployment", namespace, func(d *appsv1.Deployment) bool {
		return d.DeletionTimestamp != nil || d.Status.ObservedGeneration < d.Generation || d.Spec.Replicas != nil &&
			(d.Status.ReadyReplicas < *d.Spec.Replicas || !deploymentRolledOut(d, *d.Spec.Replicas))
	})...)
	out = append(out, suspect(ctx, r, gr.StatefulSets, "StatefulSet", namespace, func(s *appsv1.StatefulSet) bool {
		return s.DeletionTimestamp != nil || s.Status.ObservedGeneration < s.Generation || s.Spec.Replicas != nil &&
			(s.Status.ReadyReplicas < *s.Spec.Replicas || s.Status.UpdatedReplicas < *s.Spec.Replicas)
	})...)
	out = append(out, suspect(ctx, r, gr.DaemonSets, "DaemonSet", namespace, func(s *appsv1.DaemonSet) bool {
		return s.DeletionTimestamp != nil || s.Status.ObservedGeneration < s.Generation ||
			s.Status.NumberReady < s.Status.DesiredNumberScheduled
	})...)
	out = append(out, suspect(ctx, r, gr.ReplicaSets, "ReplicaSet", namespace, func(s *appsv1.ReplicaSet) bool {
		return metav1.GetControllerOf(s) == nil && s.Spec.Replicas != nil && s.Status.ReadyReplicas < *s.Spec.Replicas
	})...)
	out = append(out, suspect(ctx, r, gr.Jobs, "Job", namespace, func(j *batchv1.Job) bool {
		return !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	})...)
	out = append(out, suspect(ctx, r, gr.Pods, "Pod", namespace, podSuspect)...)
	out = append(out, suspect(ctx, r, gr.HorizontalPodAutoscalers, "HorizontalPodAutoscaler", namespace,
		func(*autoscalingv2.HorizontalPodAutoscaler) bool { return true })...)
	out = append(out, suspect(ctx, r, ingresses(), "Ingress", namespace, func(*networkingv1.Ingress) bool { return true })...)
	out = append(out, suspect(ctx, r, gr.PersistentVolumeClaims, "PersistentVolumeClaim", namespace,
		func(c *corev1.PersistentVolumeClaim) bool {
			return c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound
		})...)
	return append(out, suspect(ctx, r, gr.Services, "Service", namespace, func(s *corev1.Service) bool {
		return s.DeletionTimestamp != nil || len(s.Spec.Selector) > 0 || s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
			len(s.Status.LoadBalancer.Ingress) == 0
	})...)
}

// suspect lists the objects of a resource that a predicate does not find well.
func suspect[T any](ctx context.Context, r *reader, from schema.GroupResource, kindName, namespace string,
	bad func(*T) bool) (out []Target) {
	items, _ := lookup.List[T](ctx, r.Reader, from, namespace, "")
	for i := range items {
		if o, ok := any(&items[i]).(metav1.Object); ok && o.GetName() != "" && bad(&items[i]) {
			r.Keep(from, o.GetNamespace(), o.GetName(), &items[i])
			out = append(out, Target{Resource: from, Kind: kindName, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	return out
}

func nodeSuspect(n *corev1.Node) bool {
	c := nodeCondition(n, corev1.NodeReady)
	return n.DeletionTimestamp != nil || c == nil || c.Status != corev1.ConditionTrue
}

func podSuspect(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded && p.DeletionTimestamp == nil || isReplaced(p) {
		return false
	}
	c := lookup.PodCondition(p, corev1.PodReady)
	return p.DeletionTimestamp != nil || c == nil || c.Status != corev1.ConditionTrue
}
