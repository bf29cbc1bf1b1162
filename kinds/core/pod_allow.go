package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodAllowances says which of today's rules a pod spec may break because it broke them when it was
// stored, under older rules. The zero value allows nothing.
type PodAllowances struct {
	invalidDeletionCost       bool
	invalidAffinityLabelValue bool
	invalidNodeAffinityValue  bool
	invalidSpreadSelector     bool
	invalidSpreadKeys         bool
	indivisibleHugePages      bool
	nonLocalTokenPath         bool
	namespacedSysctlsOnHost   bool
	comparedTolerations       bool
	restartOfInitOnResize     bool
	userNamespaceDevices      bool
	userNamespaceHostNetwork  bool
	emptyImageReference       bool
	sysAdminWithoutEscalation bool
	isPod                     bool // the spec belongs to a pod and not to a template
}

// allowances derives what may stay from what is stored.
func allowances(s *corev1.PodSpec, meta *metav1.ObjectMeta) PodAllowances {
	cost, hasCost := meta.Annotations[deletionCostAnnotation]
	a := PodAllowances{
		invalidDeletionCost: hasCost && !isDeletionCost(cost),
		comparedTolerations: slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool {
			return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
		}),
		indivisibleHugePages:     hasPartialPages(&corev1.ResourceRequirements{Limits: s.Overhead}),
		userNamespaceHostNetwork: s.HostNetwork && s.HostUsers != nil && !*s.HostUsers,
	}
	a.allowAffinity(s)
	for i := range s.TopologySpreadConstraints {
		c := &s.TopologySpreadConstraints[i]
		a.invalidSpreadSelector = a.invalidSpreadSelector ||
			len(metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0
		a.invalidSpreadKeys = a.invalidSpreadKeys || len(validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, nil)) > 0
	}
	if c := s.SecurityContext; c != nil {
		a.namespacedSysctlsOnHost = slices.ContainsFunc(c.Sysctls, func(x corev1.Sysctl) bool { return len(hostSysctl(s, x.Name, nil)) > 0 })
	}
	for _, v := range s.Volumes {
		a.emptyImageReference = a.emptyImageReference || v.Image != nil && v.Image.Reference == ""
		a.nonLocalTokenPath = a.nonLocalTokenPath || hasNonLocalToken(v.Projected)
	}
	for list, c := range containersOf(s) {
		a.indivisibleHugePages = a.indivisibleHugePages || hasPartialPages(&c.Resources)
		a.userNamespaceDevices = a.userNamespaceDevices || s.HostUsers != nil && !*s.HostUsers && len(c.VolumeDevices) > 0
		a.sysAdminWithoutEscalation = a.sysAdminWithoutEscalation || hasSysAdmin(c.SecurityContext)
		a.restartOfInitOnResize = a.restartOfInitOnResize || list == "initContainers" && !isSidecar(c) &&
			slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
	}
	return a
}

func (a *PodAllowances) allowAffinity(s *corev1.PodSpec) {
	if s.Affinity == nil {
		return
	}
	if n := s.Affinity.NodeAffinity; n != nil && n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, t := range n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range t.MatchExpressions {
				a.invalidNodeAffinityValue = a.invalidNodeAffinityValue ||
					slices.ContainsFunc(e.Values, func(v string) bool { return len(validation.IsValidLabelValue(v)) > 0 })
			}
		}
	}
	for t := range podTerms(s.Affinity) {
		a.invalidAffinityLabelValue = a.invalidAffinityLabelValue || len(podTermSelectors(t, false, nil)) > 0
	}
}

func hasNonLocalToken(p *corev1.ProjectedVolumeSource) bool {
	return p != nil && slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil && len(localPath(s.ServiceAccountToken.Path, nil)) > 0
	})
}

func hasPartialPages(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for res, q := range list {
			if isHugePages(res) && !divisible(res, q) {
				return true
			}
		}
	}
	return false
}

func hasSysAdmin(c *corev1.SecurityContext) bool {
	return c != nil && !isTrue(c.AllowPrivilegeEscalation) && c.Capabilities != nil &&
		slices.ContainsFunc(c.Capabilities.Add, func(added corev1.Capability) bool { return added == "CAP_SYS_ADMIN" })
}
