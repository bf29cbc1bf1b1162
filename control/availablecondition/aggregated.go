package availablecondition

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// recheck is the interval between checks of an APIService's server, and firstRecheck the first one after a failure. The
	// interval grows with the time since the failure.
	recheck      = 30 * time.Second
	firstRecheck = time.Second
)

// Aggregated returns the controller that checks whether the servers of APIServices that name a Service are available. check
// sends such a server a request, and returns an error if it does not answer as it should.
func Aggregated(check func(ctx context.Context, s *apiregistrationv1.APIService) error) control.Controller {
	byService := client.Index{Name: "service", Values: func(o kind.Object) []string {
		if s, ok := o.(*apiregistrationv1.APIService); ok && s.Spec.Service != nil {
			return []string{s.Spec.Service.Namespace + "/" + s.Spec.Service.Name}
		}
		return nil
	}}
	users := func(c *control.Cluster, namespace, service string) iter.Seq[control.Key] {
		return func(yield func(control.Key) bool) {
			for o := range c.View(gr.APIServices).By(byService, namespace+"/"+service) {
				if !yield(control.KeyOf(o)) {
					return
				}
			}
		}
	}
	return control.Controller{
		Name: "aggregated-availability-controller", For: gr.APIServices, Writes: []control.Write{{On: gr.APIServices, Do: "update/status"}},
		Workers: 5, // a server that does not answer keeps one of them waiting
		When:    specChanged,
		Triggers: []control.Trigger{
			{On: gr.Services, Keys: func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
				return users(c, o.GetNamespace(), o.GetName())
			}},
			{On: gr.EndpointSlices, Keys: func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
				return users(c, o.GetNamespace(), o.GetLabels()[discoveryv1.LabelServiceName])
			}},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, found := control.Get[*apiregistrationv1.APIService](c, gr.APIServices, "", k.Name)
			if !found || have.Spec.Service == nil {
				return 0, nil
			}
			want := serviceCondition(c, have)
			if want.Status == apiregistrationv1.ConditionTrue {
				if err := check(ctx, have); err != nil {
					want = unavailable("FailedDiscoveryCheck", "%v", err)
				}
			}
			now := time.Now()
			conditions, changed := withCondition(have.Status.Conditions, want, now)
			if !changed {
				return nextCheck(conditions, now), nil
			}
			next := have.DeepCopy()
			next.Status.Conditions = conditions
			_, err := c.Update(ctx, gr.APIServices, next, "status")
			return nextCheck(conditions, now), control.IgnoreNotFound(err)
		},
	}
}

// specChanged ignores changes of the status, which are those of the controller itself.
func specChanged(old, now kind.Object) bool {
	was, _ := old.(*apiregistrationv1.APIService)
	is, _ := now.(*apiregistrationv1.APIService)
	return was == nil || is == nil || len(is.Status.Conditions) == 0 || !reflect.DeepEqual(was.Spec, is.Spec)
}

// serviceCondition returns the condition that follows from the Service of an APIService and its EndpointSlices.
func serviceCondition(c *control.Cluster, s *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	ref := s.Spec.Service
	service, _ := control.Get[*corev1.Service](c, gr.Services, ref.Namespace, ref.Name)
	var slicesOf []*discoveryv1.EndpointSlice
	for o := range c.View(gr.EndpointSlices).List(ref.Namespace) {
		if e, ok := o.(*discoveryv1.EndpointSlice); ok && e.Labels[discoveryv1.LabelServiceName] == ref.Name {
			slicesOf = append(slicesOf, e)
		}
	}
	return endpointCondition(ref, service, slicesOf)
}

// endpointCondition returns the condition of an APIService whose Service does or does not have endpoints at the port that the
// APIService names. Only Services of type ClusterIP can be checked so. service is nil if it does not exist.
func endpointCondition(ref *apiregistrationv1.ServiceReference, service *corev1.Service,
	behind []*discoveryv1.EndpointSlice) apiregistrationv1.APIServiceCondition {
	if service == nil {
		return unavailable("ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP {
		return available()
	}
	port := int32(443)
	if ref.Port != nil {
		port = *ref.Port
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if at < 0 {
		return unavailable("ServicePortError", "service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, port)
	}
	if len(behind) == 0 {
		return unavailable("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)
	}
	name := service.Spec.Ports[at].Name
	if !slices.ContainsFunc(behind, func(e *discoveryv1.EndpointSlice) bool { return isReady(e, name) }) {
		return unavailable("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name)
	}
	return available()
}

// isReady reports whether an EndpointSlice has a ready endpoint, and a port of the name.
func isReady(e *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(e.Endpoints,
		func(p discoveryv1.Endpoint) bool { return p.Conditions.Ready == nil || *p.Conditions.Ready }) &&
		slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool { return p.Name != nil && *p.Name == port && p.Port != nil })
}

func available() apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed", Message: "all checks passed",
	}
}

func unavailable(reason, format string, args ...any) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// withCondition returns conditions with one of them replaced. A condition that keeps its status keeps its transition time.
func withCondition(have []apiregistrationv1.APIServiceCondition, want apiregistrationv1.APIServiceCondition,
	now time.Time) (out []apiregistrationv1.APIServiceCondition, changed bool) {
	want.LastTransitionTime = metav1.NewTime(now)
	out = slices.Clone(have)
	at := slices.IndexFunc(have, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == want.Type })
	if at < 0 {
		return append(out, want), true
	}
	if have[at].Status == want.Status {
		want.LastTransitionTime = have[at].LastTransitionTime
	}
	out[at] = want
	return out, have[at] != want
}

// nextCheck returns the time until the next check: the longer the server has been unavailable, the longer.
func nextCheck(conditions []apiregistrationv1.APIServiceCondition, now time.Time) time.Duration {
	for _, c := range conditions {
		if c.Type == apiregistrationv1.Available && c.Status != apiregistrationv1.ConditionTrue {
			return min(max(firstRecheck, now.Sub(c.LastTransitionTime.Time)), recheck)
		}
	}
	return recheck
}
