package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/core/volumesource"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/resourcename"
)

// Allowances says which of today's rules a pod spec may break because it was stored under older rules and broke them
// already. The zero value allows nothing.
type Allowances struct {
	Volumes    volumesource.Allowances
	Containers containerspec.Allowances
	Placement  podplacement.Allowances

	InvalidDeletionCost      bool
	UserNamespaceDevices     bool
	UserNamespaceHostNetwork bool
	ForPod                   bool // the spec belongs to a pod and not to a template
}

// AllowancesOf returns the rules that a stored spec breaks, so that an update may leave it as it is.
func AllowancesOf(s *corev1.PodSpec, meta *metav1.ObjectMeta) Allowances {
	cost, hasCost := meta.Annotations[deletionCostAnnotation]
	a := Allowances{
		InvalidDeletionCost:      hasCost && !isDeletionCost(cost),
		UserNamespaceHostNetwork: s.HostNetwork && s.HostUsers != nil && !*s.HostUsers,
	}
	a.Placement.ComparingTolerations = slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	})
	a.Containers.IndivisibleHugePages = hasPartialPages(&corev1.ResourceRequirements{Limits: s.Overhead})
	a.allowAffinity(s)
	for i := range s.TopologySpreadConstraints {
		c := &s.TopologySpreadConstraints[i]
		a.Placement.InvalidSpreadSelector = a.Placement.InvalidSpreadSelector ||
			len(metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0
		a.Placement.InvalidSpreadKeys = a.Placement.InvalidSpreadKeys ||
			len(podplacement.ValidateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, nil)) > 0
	}
	if c := s.SecurityContext; c != nil {
		a.Containers.NamespacedSysctlsOnHost = slices.ContainsFunc(c.Sysctls,
			func(x corev1.Sysctl) bool { return len(containerspec.ValidateHostSysctl(s, x.Name, nil)) > 0 })
	}
	for _, v := range s.Volumes {
		a.Volumes.EmptyImageReference = a.Volumes.EmptyImageReference || v.Image != nil && v.Image.Reference == ""
		a.Volumes.NonLocalTokenPath = a.Volumes.NonLocalTokenPath || hasNonLocalToken(v.Projected)
	}
	for list, c := range containerspec.All(s) {
		a.Containers.IndivisibleHugePages = a.Containers.IndivisibleHugePages || hasPartialPages(&c.Resources)
		a.UserNamespaceDevices = a.UserNamespaceDevices || s.HostUsers != nil && !*s.HostUsers && len(c.VolumeDevices) > 0
		a.Containers.SysAdminWithoutEscalation = a.Containers.SysAdminWithoutEscalation || hasSysAdmin(c.SecurityContext)
		a.Containers.RestartOfInitOnResize = a.Containers.RestartOfInitOnResize || list == "initContainers" &&
			!containerspec.IsSidecar(c) &&
			slices.ContainsFunc(c.ResizePolicy,
				func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
	}
	return a
}

func (a *Allowances) allowAffinity(s *corev1.PodSpec) {
	if s.Affinity == nil {
		return
	}
	if n := s.Affinity.NodeAffinity; n != nil && n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, t := range n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range t.MatchExpressions {
				a.Placement.InvalidNodeLabelValue = a.Placement.InvalidNodeLabelValue ||
					slices.ContainsFunc(e.Values, func(v string) bool { return len(validation.IsValidLabelValue(v)) > 0 })
			}
		}
	}
	for t := range podplacement.PodTerms(s.Affinity) {
		a.Placement.InvalidPodLabelValue = a.Placement.InvalidPodLabelValue || len(podplacement.ValidateTermSelectors(t, false, nil)) > 0
	}
}

func hasNonLocalToken(p *corev1.ProjectedVolumeSource) bool {
	return p != nil && slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil && len(check.UnreservedPath(s.ServiceAccountToken.Path, nil)) > 0
	})
}

func hasPartialPages(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for res, q := range list {
			if resourcename.IsHugePages(res) && !containerspec.IsWholeHugePages(res, q) {
				return true
			}
		}
	}
	return false
}

func hasSysAdmin(c *corev1.SecurityContext) bool {
	return c != nil && !ptr.Deref(c.AllowPrivilegeEscalation, false) && c.Capabilities != nil &&
		slices.ContainsFunc(c.Capabilities.Add, func(added corev1.Capability) bool { return added == "CAP_SYS_ADMIN" })
}
