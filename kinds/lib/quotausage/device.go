package quotausage

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Devices is what the usage of resource claims depends on besides the claims: a device class may stand for an
// extended resource, and a claim does not count for what its pod counts for already under that name.
type Devices struct {
	Classes []*resourcev1.DeviceClass
	// Pod returns a pod of a namespace by name; nil when there is none.
	Pod func(namespace, name string) *corev1.Pod
	// Claims are the claims of a namespace.
	Claims func(namespace string) []*resourcev1.ResourceClaim
}

// extendedResource returns the extended resource that a class stands for.
func (d *Devices) extendedResource(class string) string {
	if d != nil {
		for _, c := range d.Classes {
			if c.Name == class && c.Spec.ExtendedResourceName != nil {
				return *c.Spec.ExtendedResourceName
			}
		}
	}
	return ""
}

// countsClaims reports whether a quota bounds claims by that name.
func (d *Devices) countsClaims(name corev1.ResourceName) bool {
	if strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		return true
	}
	if d == nil || !isExtendedQuota(name) {
		return false
	}
	if class, ok := strings.CutPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass); ok && d.extendedResource(class) != "" {
		return true
	}
	wanted := strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	for _, c := range d.Classes {
		if wanted == resourcev1.ResourceDeviceClassPrefix+c.Name || c.Spec.ExtendedResourceName != nil &&
			*c.Spec.ExtendedResourceName == wanted {
			return true
		}
	}
	return false
}

// deviceClaimUsage adds the maximum number of devices of each class that a claim may get.
func (c Counter) deviceClaimUsage(used corev1.ResourceList, claim *resourcev1.ResourceClaim) {
	devices := map[string]int64{}
	for _, r := range claim.Spec.Devices.Requests {
		switch {
		case len(r.FirstAvailable) > 0:
			most := map[string]int64{} // one of the alternatives will be allocated, which one is unknown
			for _, s := range r.FirstAvailable {
				most[s.DeviceClassName] = max(most[s.DeviceClassName], deviceCount(s.AllocationMode, s.Count))
			}
			for class, n := range most {
				if n > 0 {
					devices[class] += n
				}
			}
		case r.Exactly != nil:
			devices[r.Exactly.DeviceClassName] += deviceCount(r.Exactly.AllocationMode, r.Exactly.Count)
		}
	}
	paid := c.Devices.usageOfPod(claim, c.Now)
	extended := corev1.ResourceList{}
	for class, n := range devices {
		q := *resource.NewQuantity(n, resource.DecimalSI)
		used[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = q
		if class == "" {
			continue
		}
		extended[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] = q
		if name := c.Devices.extendedResource(class); name != "" {
			extended[corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+name)] = q
		}
	}
	maps.Copy(used, growth(extended, paid))
}

func deviceCount(mode resourcev1.DeviceAllocationMode, n int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return n
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}

// usageOfPod returns the usage of the pod that a claim was created for because of its extended resources, once the pod and
// the claim refer to each other.
func (d *Devices) usageOfPod(claim *resourcev1.ResourceClaim, now time.Time) corev1.ResourceList {
	owner := podOf(claim)
	if d == nil || d.Pod == nil || owner == nil {
		return nil
	}
	pod := d.Pod(claim.Namespace, owner.Name)
	if pod == nil || pod.UID != owner.UID {
		return nil
	}
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil {
		if st.ResourceClaimName != claim.Name {
			return nil
		}
	} else if d.Claims != nil && !isOldest(claim, owner, d.Claims(claim.Namespace)) {
		return nil
	}
	return Counter{Resource: pods(), Now: now}.Usage(pod)
}

// podOf returns the reference to the pod that a claim was created for because of its extended resources.
func podOf(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	return owner
}

// isOldest reports whether a claim is the oldest of those created for a pod, which counts for one only.
func isOldest(claim *resourcev1.ResourceClaim, owner *metav1.OwnerReference, all []*resourcev1.ResourceClaim) bool {
	for _, other := range all {
		if o := podOf(other); o == nil || o.UID != owner.UID {
			continue
		}
		switch other.CreationTimestamp.Compare(claim.CreationTimestamp.Time) {
		case -1:
			return false
		case 0:
			if other.Name < claim.Name {
				return false
			}
		}
	}
	return true
}
