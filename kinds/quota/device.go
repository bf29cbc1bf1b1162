package quota

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Devices is what the usage of resource claims depends on besides the claims: a class of devices may stand for an extended
// resource, and what a pod has already paid for under that name its claim does not pay again.
type Devices struct {
	Classes []*resourcev1.DeviceClass
	// Pod finds a pod of a namespace by name; nil when there is none.
	Pod func(namespace, name string) *corev1.Pod
	// Claims are the claims of a namespace.
	Claims func(namespace string) []*resourcev1.ResourceClaim
}

// extended is the extended resource that a class stands for.
func (d *Devices) extended(class string) string {
	if d != nil {
		for _, c := range d.Classes {
			if c.Name == class && c.Spec.ExtendedResourceName != nil {
				return *c.Spec.ExtendedResourceName
			}
		}
	}
	return ""
}

// claimName says that claims count for what a quota bounds by that name.
func (d *Devices) claimName(name corev1.ResourceName) bool {
	if strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		return true
	}
	if d == nil || !extendedName(name) {
		return false
	}
	if class, ok := strings.CutPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass); ok && d.extended(class) != "" {
		return true
	}
	wanted := strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	for _, c := range d.Classes {
		if wanted == resourcev1.ResourceDeviceClassPrefix+c.Name || c.Spec.ExtendedResourceName != nil && *c.Spec.ExtendedResourceName == wanted {
			return true
		}
	}
	return false
}

// deviceClaimUsage adds the most devices of each class that a claim may get.
func (c Counter) deviceClaimUsage(used corev1.ResourceList, claim *resourcev1.ResourceClaim) {
	devices := map[string]int64{}
	for _, r := range claim.Spec.Devices.Requests {
		switch {
		case len(r.FirstAvailable) > 0:
			most := map[string]int64{} // one of them is chosen, nobody knows which
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
	paid := c.Devices.paid(claim, c.Now)
	extended := corev1.ResourceList{}
	for class, n := range devices {
		q := *resource.NewQuantity(n, resource.DecimalSI)
		used[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = q
		if class == "" {
			continue
		}
		extended[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] = q
		if name := c.Devices.extended(class); name != "" {
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

// paid is the usage of the pod that a claim was made for because of the extended resources it asks for, once the pod and
// the claim agree about that.
func (d *Devices) paid(claim *resourcev1.ResourceClaim, now time.Time) corev1.ResourceList {
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
	} else if d.Claims != nil && !first(claim, owner, d.Claims(claim.Namespace)) {
		return nil
	}
	return Counter{Resource: pods(), Now: now}.Usage(pod)
}

// podOf is the pod that a claim was made for because of its extended resources.
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

// first says that a claim is the oldest of those made for a pod. The pod pays for one only.
func first(claim *resourcev1.ResourceClaim, owner *metav1.OwnerReference, all []*resourcev1.ResourceClaim) bool {
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
