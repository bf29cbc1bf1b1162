package nodestatus

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources computes capacity and allocatable. Resources that neither the machine nor a plugin has belong to others and
// stay; those of plugins that have disappeared become zero, so that they remain visible.
func resources(st *corev1.NodeStatus, c *Config, f *Facts) {
	capacity := copyOf(st.Capacity)
	own := machineCapacity(c, f)
	for name := range capacity {
		if _, has := own[name]; !has && huge(name) {
			delete(capacity, name)
		}
		if f.Devices.Reset && IsExtended(name) {
			capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	for _, from := range []corev1.ResourceList{own, f.Devices.Capacity} {
		for name, q := range from {
			capacity[name] = q
		}
	}
	for _, name := range f.Devices.Removed {
		capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	st.Capacity = capacity
	st.Allocatable = allocatable(capacity, c, f)
}

// machineCapacity returns the capacity of the machine itself.
func machineCapacity(c *Config, f *Facts) corev1.ResourceList {
	pods := cmp.Or(c.MaxPods, 110)
	if c.PodsPerCore > 0 {
		pods = min(pods, f.Machine.CPUs*c.PodsPerCore)
	}
	out := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(f.Machine.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(f.Machine.Memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(pods), resource.DecimalSI),
	}
	if f.Storage > 0 {
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(f.Storage, resource.BinarySI)
	}
	for size, pages := range f.Machine.HugePages {
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
		out[name] = *resource.NewQuantity(size*pages, resource.BinarySI)
	}
	return out
}

// allocatable returns what is left of a capacity for Pods.
func allocatable(capacity corev1.ResourceList, c *Config, f *Facts) corev1.ResourceList {
	kept := []corev1.ResourceList{c.SystemReserved, c.KubeReserved}
	if f.Evicting != nil {
		kept = append(kept, f.Evicting(capacity))
	}
	out := corev1.ResourceList{}
	for name, all := range capacity {
		left := all.DeepCopy()
		for _, list := range kept {
			if q, ok := list[name]; ok {
				left.Sub(q)
			}
		}
		out[name] = positive(left)
	}
	for name, q := range f.Devices.Allocatable {
		out[name] = q
	}
	// Memory of huge pages cannot be used for anything else.
	for name, q := range capacity {
		if huge(name) {
			memory := out[corev1.ResourceMemory].DeepCopy()
			memory.Sub(q)
			out[corev1.ResourceMemory] = positive(memory)
		}
	}
	return out
}

func positive(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

func huge(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsExtended reports whether a resource is an extended resource.
func IsExtended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}
