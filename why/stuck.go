package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/traffic"
)

// explainer explains one object of a kind.
type explainer func(*reader, context.Context, Target) (*Answer, error)

// explainers are the kinds of which more is known than the conventions of the API.
func explainers() map[schema.GroupResource]explainer {
	return map[schema.GroupResource]explainer{
		gr.Pods: (*reader).pod, gr.Nodes: (*reader).node, gr.PersistentVolumeClaims: (*reader).claim,
		gr.PersistentVolumes: (*reader).volume, gr.Namespaces: (*reader).namespace,
		gr.Deployments: (*reader).deployment, gr.ReplicaSets: (*reader).replicaSet, gr.StatefulSets: (*reader).statefulSet,
		gr.DaemonSets: (*reader).daemonSet, gr.ReplicationControllers: (*reader).replicationController,
		gr.Jobs: (*reader).job, gr.CronJobs: (*reader).cronJob, gr.HorizontalPodAutoscalers: (*reader).autoscaler,
		gr.Services: (*reader).service, traffic.Ingresses(): (*reader).ingress,
		traffic.GatewayResource("gateways"): (*reader).gateway, traffic.GatewayResource("httproutes"): (*reader).route,
		traffic.GatewayResource("grpcroutes"): (*reader).route, traffic.GatewayResource("tlsroutes"): (*reader).route,
		gr.CertificateSigningRequests: (*reader).signingRequest,
	}
}

// resourceOf returns the resource of a kind that may be the cause of an answer about another object.
func resourceOf(kindName string) (schema.GroupResource, bool) {
	on, known := map[string]schema.GroupResource{
		"Pod": gr.Pods, "Node": gr.Nodes, "PersistentVolumeClaim": gr.PersistentVolumeClaims, "Service": gr.Services, "Job": gr.Jobs,
		"ReplicaSet": gr.ReplicaSets, "Gateway": traffic.GatewayResource("gateways"),
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
