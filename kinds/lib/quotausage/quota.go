// Package quotausage computes the usage of objects in ResourceQuotas and which quotas they count in. The admission plugin that charges
// a quota and the controller that recounts it both use it, because they must agree on every number.
package quotausage

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Counter computes the usage of the objects of one resource.
type Counter struct {
	Resource schema.GroupResource
	// Now is the time that decides which deleted pods no longer count.
	Now time.Time
	// Devices is what the count of resource claims depends on besides the claims; nil for all other resources.
	Devices *Devices
}

// IsIgnored reports whether a resource counts in no quota: it is not stored, or it is events, which must not be
// refused.
func IsIgnored(gr schema.GroupResource) bool {
	switch gr.Group {
	case "":
		return gr.Resource == "bindings" || gr.Resource == "componentstatuses" || gr.Resource == "events"
	case "events.k8s.io":
		return gr.Resource == "events"
	case "authentication.k8s.io":
		return gr.Resource == "tokenreviews" || gr.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		return strings.HasSuffix(gr.Resource, "reviews")
	}
	return false
}

// CountName returns the name by which a quota bounds the number of stored objects of a resource.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + gr.String())
}

// oldName returns the older name by which quotas bound the number of objects; empty for most resources. Pods,
// services and claims have such names too, which mean more than a number.
func oldName(gr schema.GroupResource) corev1.ResourceName {
	if gr.Group != "" {
		return ""
	}
	switch gr.Resource {
	case "configmaps", "resourcequotas", "replicationcontrollers", "secrets":
		return corev1.ResourceName(gr.Resource)
	}
	return ""
}

// pods, services and the others below are the resources whose usage is more than a count.
func pods() schema.GroupResource     { return schema.GroupResource{Resource: "pods"} }
func services() schema.GroupResource { return schema.GroupResource{Resource: "services"} }
func volumeClaims() schema.GroupResource {
	return schema.GroupResource{Resource: "persistentvolumeclaims"}
}
func deviceClaims() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
}

// Usage returns the usage of one object.
func (c Counter) Usage(obj kind.Object) corev1.ResourceList {
	used := corev1.ResourceList{CountName(c.Resource): number(1)}
	switch o := obj.(type) {
	case *corev1.Pod:
		podUsage(used, o, c.Now)
	case *corev1.Service:
		serviceUsage(used, o)
	case *corev1.PersistentVolumeClaim:
		volumeClaimUsage(used, o)
	case *resourcev1.ResourceClaim:
		c.deviceClaimUsage(used, o)
	default:
		if name := oldName(c.Resource); name != "" {
			used[name] = number(1)
		}
	}
	return used
}

// Names returns those of the bounded resources to which objects of this resource contribute, sorted.
func (c Counter) Names(hard corev1.ResourceList) []corev1.ResourceName {
	count, old := CountName(c.Resource), oldName(c.Resource)
	var counts func(corev1.ResourceName) bool
	switch c.Resource {
	case pods():
		counts = podName
	case services():
		counts = serviceName
	case volumeClaims():
		counts = volumeClaimName
	case deviceClaims():
		counts = c.Devices.countsClaims
	default:
		counts = func(name corev1.ResourceName) bool { return name == old }
	}
	var names []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		if name == count || counts(name) {
			names = append(names, name)
		}
	}
	return names
}

// Matches reports whether an object counts in a quota: the status of the quota bounds a resource to which it
// contributes, and it is in the scopes of the quota.
func (c Counter) Matches(q *corev1.ResourceQuota, obj kind.Object) bool {
	return len(c.Names(q.Status.Hard)) > 0 && c.InScopes(&q.Spec, obj)
}

// Used returns the sum of the usage of objects for the resources that the spec of a quota bounds, with zero for those
// without usage. The status of the quota should have it.
func (c Counter) Used(spec *corev1.ResourceQuotaSpec, objects []kind.Object) corev1.ResourceList {
	names := c.Names(spec.Hard)
	used := corev1.ResourceList{}
	for _, name := range names {
		used[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	for _, obj := range objects {
		if c.InScopes(spec, obj) {
			used = Add(used, Mask(c.Usage(obj), names))
		}
	}
	return used
}

// Resources returns the resources whose objects contribute to what a quota bounds. Counts of unknown resources are
// included; whether they are served is not decided here.
func Resources(hard corev1.ResourceList, devices *Devices) []schema.GroupResource {
	var out []schema.GroupResource
	special := []schema.GroupResource{pods(), services(), volumeClaims(), deviceClaims()}
	for _, gr := range special {
		if len(Counter{Resource: gr, Devices: devices}.Names(hard)) > 0 {
			out = append(out, gr)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		gr := schema.GroupResource{Resource: string(name)}
		if counted, ok := strings.CutPrefix(string(name), "count/"); ok {
			gr = schema.ParseGroupResource(counted)
		} else if oldName(gr) == "" {
			continue
		}
		if !slices.Contains(out, gr) && !slices.Contains(special, gr) && !IsIgnored(gr) {
			out = append(out, gr)
		}
	}
	return out
}

// MayFree reports whether an update may lower the usage of an object, so that its quotas must be recounted.
func MayFree(obj, old kind.Object, at time.Time) bool {
	switch obj := obj.(type) {
	case *corev1.Pod:
		old, ok := old.(*corev1.Pod)
		return ok && (wasResized(obj, old) || isTerminating(obj) != isTerminating(old) || isAlive(old, at) && !isAlive(obj, at))
	case *corev1.Service:
		old, ok := old.(*corev1.Service)
		if !ok {
			return false
		}
		now, was := corev1.ResourceList{}, corev1.ResourceList{}
		serviceUsage(now, obj)
		serviceUsage(was, old)
		return !Equal(now, was)
	case *corev1.PersistentVolumeClaim:
		old, ok := old.(*corev1.PersistentVolumeClaim)
		return ok && hasClaimChanged(obj, old)
	}
	return false
}

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
