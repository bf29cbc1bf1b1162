package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodAllowances says which of today's rules a pod spec may break because it broke them when it was
// stored, under older rules. The zero value allows nothing.
type PodAllowances struct {
	invalidDeletionCost       bool
	invalidAffinityLabelValue bool
	indivisibleHugePages      bool
	invalidSpreadSelector     bool
	invalidSpreadKeys         bool
	nonLocalTokenPath         bool
	namespacedSysctlsOnHost   bool
	comparedTolerations       bool
	invalidNodeAffinityValue  bool
	restartOfInitOnResize     bool
	userNamespaceDevices      bool
	userNamespaceHostNetwork  bool
	emptyImageReference       bool
	sysAdminWithoutEscalation bool
	isPod                     bool // the spec belongs to a pod and not to a template
}

// allowances derives what may stay from what is stored; both may be nil.
func allowances(old *corev1.PodSpec, meta *metav1.ObjectMeta) PodAllowances {
	return PodAllowances{}
}
