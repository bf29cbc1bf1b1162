package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
	"proa.dev/why/traffic"
)

// service explains a Service as a chain: its selector, the Pods, their readiness, the EndpointSlices, the nodes.
func (r *reader) service(ctx context.Context, t Target) (*Answer, error) {
	s, err := lookup.Load[corev1.Service](ctx, r.Reader, gr.Services, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	return r.explainService(ctx, s), nil
}

func (r *reader) explainService(ctx context.Context, s *corev1.Service) *Answer {
	a := (&Answer{Object: Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name}, State: Stuck}).At(hop.Network)
	switch {
	case s.DeletionTimestamp != nil:
		return metadata.Ending(a, &s.ObjectMeta, r.Now)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		a.State, a.Cause, a.Hop, a.HopName = Working, "The Service is another name for "+s.Spec.ExternalName+
			"; whether that answers is not for the cluster to say.", 0, ""
		return a.Because(a.Object, "spec.externalName", s.Spec.ExternalName, time.Time{})
	}
	if len(s.Spec.Selector) == 0 {
		a.AddStep("selector", true, "none: the endpoints are made by hand")
		return r.serviceEndpoints(ctx, s, a)
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	a.AddStep("selector", true, "%s", selector)
	all, seen := lookup.List[corev1.Pod](ctx, r.Reader, gr.Pods, s.Namespace, "")
	pods := selected(all, selector, podLabels)
	if seen && !a.AddStep("Pods", len(pods) > 0, "%s of namespace %s with these labels", answer.Plural(len(pods), "Pod"), s.Namespace) {
		a.Cause = "The Service has no endpoints because no Pod of namespace " + s.Namespace + " has the labels of its selector, " +
			selector.String() + "."
		if near := nearest(all, s.Spec.Selector); near != "" {
			a.Do("%s", near)
		}
		return a.Because(a.Object, "spec.selector", selector.String(), time.Time{}).At(hop.Control).
			Do("kubectl get pods%s --show-labels shows the labels there are", answer.InNamespace(s.Namespace))
	}
	ready := 0
	var worst *Answer
	for _, p := range pods {
		if c := lookup.PodCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
			ready++
		}
	}
	if seen && ready == 0 {
		worst = r.worstPod(ctx, pods)
	}
	if seen && !a.AddStep("readiness", ready > 0 || s.Spec.PublishNotReadyAddresses, "%d of %s ready", ready,
		answer.Plural(len(pods), "Pod")) {
		a.Cause = "The Service has no endpoints because none of its Pods is ready."
		if a.Through = worst; worst != nil {
			a.Cause = "The Service has no endpoints because none of its Pods is ready; " + worst.Object.Name + ": " +
				answer.Lower(worst.Cause)
			a.Hop, a.HopName = worst.Hop, worst.HopName
			if slices.ContainsFunc(pods, mayBecomeReady) {
				a.State = worst.State
			}
		}
		return a.Because(a.Object, "spec.selector", selector.String(), time.Time{})
	}
	return r.serviceEndpoints(ctx, s, a)
}

// mayBecomeReady tells whether a Pod has neither ended nor is about to.
func mayBecomeReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

// maxSlices is the number of EndpointSlices of a Service of which it is asked which nodes have programmed them.
const maxSlices = 10

// serviceEndpoints goes on with the chain from the EndpointSlices.
func (r *reader) serviceEndpoints(ctx context.Context, s *corev1.Service, a *Answer) *Answer {
	all, seen := lookup.List[discoveryv1.EndpointSlice](ctx, r.Reader, gr.EndpointSlices, s.Namespace, "")
	if !seen {
		a.State, a.Cause = Unknown, "The EndpointSlices of the Service cannot be read, so that it is not known where its traffic goes."
		return a
	}
	addresses := 0
	served := map[string]bool{}
	for i := range all {
		if all[i].Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		if len(r.slices[a.Object]) < maxSlices && s.Spec.ClusterIP != corev1.ClusterIPNone {
			r.slices[a.Object] = append(r.slices[a.Object], all[i].Name)
		}
		for _, e := range all[i].Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			addresses += len(e.Addresses)
			for _, p := range all[i].Ports {
				served[ptr.Deref(p.Name, "")] = true
			}
		}
	}
	if !a.AddStep("EndpointSlices", addresses > 0, "%s", answer.Plural(addresses, "ready address")) {
		a.At(hop.Control)
		switch {
		case len(s.Spec.Selector) == 0:
			a.Cause = "The Service has no selector, and nobody has made EndpointSlices with ready addresses for it."
			return a.Do("create an EndpointSlice with the label %s=%s, or give the Service a selector", discoveryv1.LabelServiceName, s.Name)
		case !podsSeen(a):
			a.State, a.Hop, a.HopName = Unknown, 0, ""
			a.Cause = "The EndpointSlices of the Service have no ready address; its Pods cannot be read, so that it is not known why."
			return a
		}
		a.Cause = "The Service has ready Pods, but its EndpointSlices have no ready address; the controller may not be running."
		return a.Do("proa status tells how the controllers do")
	}
	var nowhere []string
	for _, p := range s.Spec.Ports {
		if !served[p.Name] {
			nowhere = append(nowhere, fmt.Sprintf("%d to %s", p.Port, p.TargetPort.String()))
		}
	}
	if !a.AddStep("ports", len(nowhere) == 0, "%s of %d with an endpoint",
		answer.Plural(len(s.Spec.Ports)-len(nowhere), "port"), len(s.Spec.Ports)) {
		a.Cause = "The EndpointSlices have ready addresses, but not for the port " + strings.Join(nowhere, ", ") +
			": no container of a ready Pod has a port of the name that targetPort gives."
		if len(s.Spec.Selector) == 0 {
			a.Cause = "The EndpointSlices have ready addresses, but no port of the name that the Service gives to " +
				strings.Join(nowhere, ", ") + "."
		}
		return a.At(hop.Control).Because(a.Object, "spec.ports", traffic.PortsOf(s),
			time.Time{}).Do("name the container port as targetPort says, or give a number")
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !a.AddStep("load balancer", len(s.Status.LoadBalancer.Ingress) > 0, "%s",
		answer.Plural(len(s.Status.LoadBalancer.Ingress), "address")+" given") {
		a.State, a.Cause = Stuck, "The Service works inside of the cluster, but nobody has given it the address of a load balancer."
		return a.At(hop.Control).Because(a.Object, "status.loadBalancer.ingress", "empty", time.Time{}).
			Do("check whether the cluster has a provider of load balancers, and the loadBalancerClass of the Service")
	}
	a.State, a.Hop, a.HopName = Working, 0, ""
	a.Cause = "The Service leads to " + answer.Plural(addresses, "ready address") + "."
	if len(s.Spec.Selector) > 0 && s.Spec.ClusterIP != corev1.ClusterIPNone {
		a.Do("if it does not answer all the same, check that the programs listen on the target ports %s, and the NetworkPolicies of the namespace", traffic.PortsOf(s))
	}
	return a
}

// podsSeen tells whether the chain of a Service has got to its Pods.
func podsSeen(a *Answer) bool {
	return slices.ContainsFunc(a.Chain, func(s answer.Step) bool { return s.Name == "Pods" })
}

// traffic returns the explainer of what is in front of Services.
func (r *reader) traffic() *traffic.Explainer {
	return &traffic.Explainer{Reader: r.Reader, Now: r.Now, Service: r.explainService}
}

func (r *reader) ingress(ctx context.Context, t Target) (*Answer, error) {
	return r.traffic().Ingress(ctx, t.ref())
}

func (r *reader) gateway(ctx context.Context, t Target) (*Answer, error) {
	return r.traffic().Gateway(ctx, t.ref())
}

func (r *reader) route(ctx context.Context, t Target) (*Answer, error) {
	return r.traffic().Route(ctx, t.Resource, t.ref())
}

// nearest names the Pod that has most of the labels of a selector, as after a typing error: those with the same value, and of as many,
// those with the same key.
func nearest(pods []corev1.Pod, selector map[string]string) string {
	best, most := "", 0
	for i := range pods {
		n := 0
		for k, wanted := range selector {
			if value, has := pods[i].Labels[k]; has {
				n++
				if value == wanted {
					n += len(selector)
				}
			}
		}
		if n > most {
			most = n
			best = fmt.Sprintf("Pod %s comes nearest, with the labels %s", pods[i].Name, labels.Set(pods[i].Labels))
		}
	}
	return best
}
