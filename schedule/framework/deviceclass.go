package framework

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/kinds/lib/gr"
)

// DeviceClassFor returns the DeviceClass that provides an extended resource, or nil. Of several classes it returns the
// newest, or else the first by name.
func DeviceClassFor(c Cluster, name corev1.ResourceName) *resourcev1.DeviceClass {
	class, implicit := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
	switch {
	case c == nil:
		return nil
	case implicit:
		if o, found := c.Get(gr.DeviceClasses, "", class); found {
			return o.(*resourcev1.DeviceClass)
		}
		return nil
	case !IsExtended(name):
		return nil
	}
	var best *resourcev1.DeviceClass
	for o := range c.List(gr.DeviceClasses, "") { // by name
		is := o.(*resourcev1.DeviceClass)
		if e := is.Spec.ExtendedResourceName; e != nil && *e == string(name) &&
			(best == nil || best.CreationTimestamp.Before(&is.CreationTimestamp)) {
			best = is
		}
	}
	return best
}

// RequestsDeviceClass reports whether a Pod requests an extended resource that a DeviceClass provides.
func RequestsDeviceClass(pod *corev1.Pod, class *resourcev1.DeviceClass) bool {
	for name := range NewPodInfo(pod).Requests.Scalars {
		if string(name) == resourcev1.ResourceDeviceClassPrefix+class.Name || class.Spec.ExtendedResourceName != nil &&
			*class.Spec.ExtendedResourceName == string(name) {
			return true
		}
	}
	return false
}
