// Package quota says what objects count for in a ResourceQuota and which quotas they count in. It is pure: the admission
// step that charges a quota and the controller that recounts it must agree on every number, so both ask here.
package quota

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

// Counter counts the objects of one resource.
type Counter struct {
	Resource schema.GroupResource
	// Now decides which deleted pods should be gone and no longer count.
	Now time.Time
	// Devices is what the count of resource claims depends on besides the claims; nil for all other resources.
	Devices *Devices
}

// Ignored says that a resource counts in no quota: it is not stored, or it is events, which nobody can hold back.
func Ignored(gr schema.GroupResource) bool {
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

// CountName is the name by which a quota bounds the number of stored objects of a resource.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + gr.String())
}

// oldName is the name by which quotas bounded the number of objects before CountName; empty for most resources. Pods,
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

// The resources that are more than counted.
func pods() schema.GroupResource     { return schema.GroupResource{Resource: "pods"} }
func services() schema.GroupResource { return schema.GroupResource{Resource: "services"} }
func volumeClaims() schema.GroupResource {
	return schema.GroupResource{Resource: "persistentvolumeclaims"}
}
func deviceClaims() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
}

// Usage is what one object counts for.
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

// Names are those of the bounded resources that objects of this resource count for, sorted.
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
		counts = c.Devices.claimName
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

// Matches says that an object counts in a quota: it is of a kind that the quota bounds by its status, and in its scopes.
func (c Counter) Matches(q *corev1.ResourceQuota, obj kind.Object) bool {
	return len(c.Names(q.Status.Hard)) > 0 && c.InScopes(&q.Spec, obj)
}

// Used sums up what objects use of the resources that a quota bounds by its spec: what its status should say about this
// resource. What is not used is there with zero.
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

// Resources are those whose objects count for what a quota bounds. A count of a resource that nobody knows is among
// them; whether it is served is not decided here.
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
		if !slices.Contains(out, gr) && !slices.Contains(special, gr) && !Ignored(gr) {
			out = append(out, gr)
		}
	}
	return out
}

// Frees says that an update may lower what an object counts for, so that its quotas want to be counted again.
func Frees(obj, old kind.Object, at time.Time) bool {
	switch obj := obj.(type) {
	case *corev1.Pod:
		old, ok := old.(*corev1.Pod)
		return ok && (resized(obj, old) || terminating(obj) != terminating(old) || alive(old, at) && !alive(obj, at))
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
		return ok && claimMoved(obj, old)
	}
	return false
}

func number(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
