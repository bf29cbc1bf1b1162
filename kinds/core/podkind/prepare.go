package podkind

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/defaulting"
)

func preparePod(p, old *corev1.Pod) {
	if old != nil {
		keepPodResources(p, old)
		podspec.DropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
		podspec.DropDisabledStatusFields(&p.Status, &old.Status)
		return
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	podspec.DropDisabledFields(&p.Spec, p.Annotations, nil)
	if len(p.Spec.SchedulingGates) > 0 {
		setPodCondition(&p.Status, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
	mergeLabelKeys(p)
	appArmorFields(p)
	podspec.DefaultResources(&p.Spec)
	p.Status.QOSClass = podspec.QOSClass(&p.Spec)
}

// keepPodResources keeps the pod-level resources when a client that does not know the field updates a pod.
func keepPodResources(p, old *corev1.Pod) {
	if p.Spec.Resources == nil {
		p.Spec.Resources = old.Spec.Resources
	}
}

// mergeLabelKeys adds the label keys of affinity terms and spread constraints, with the values that the pod's own
// labels have for them, to their selectors, so that the scheduler evaluates selectors only.
func mergeLabelKeys(p *corev1.Pod) {
	merge := func(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if v, set := p.Labels[key]; set && s != nil {
				s.MatchExpressions = append(s.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{v}})
			}
		}
	}
	if p.Spec.Affinity != nil {
		for t := range podplacement.PodTerms(p.Spec.Affinity) {
			merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
			merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// appArmorFields sets the fields that replaced the AppArmor annotations.
func appArmorFields(p *corev1.Pod) {
	if podspec.IsWindows(&p.Spec) {
		return
	}
	for _, c := range containerspec.All(&p.Spec) {
		annotation, set := p.Annotations[podspec.AppArmorAnnotationPrefix+c.Name]
		if !set || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := podspec.AppArmorProfile(annotation)
		if profile == nil || equality.Semantic.DeepEqual(profile, podspec.PodAppArmorProfile(&p.Spec)) {
			continue
		}
		defaulting.IfNil(&c.SecurityContext, corev1.SecurityContext{})
		c.SecurityContext.AppArmorProfile = profile
	}
}

func preparePodStatus(p, old *corev1.Pod) {
	p.OwnerReferences = old.OwnerReferences
	s, was := &p.Status, &old.Status
	defaulting.IfZero(&s.QOSClass, was.QOSClass)
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	}
	if s.NodeAllocatableResourceClaimStatuses == nil {
		s.NodeAllocatableResourceClaimStatuses = was.NodeAllocatableResourceClaimStatuses
	}
	defaulting.IfZero(&s.ObservedGeneration, was.ObservedGeneration)
	// A type may occur more than once, so each value is used once.
	generations := map[corev1.PodConditionType][]int64{}
	for _, c := range was.Conditions {
		generations[c.Type] = append(generations[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if list := generations[c.Type]; len(list) > 0 {
			defaulting.IfZero(&c.ObservedGeneration, list[0])
			generations[c.Type] = list[1:]
		}
	}
	podspec.DropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
	podspec.DropDisabledStatusFields(s, was)
}

// prepareEphemeralContainers reverts all changes but those of ephemeral containers.
func prepareEphemeralContainers(p, old *corev1.Pod) {
	added := p.Spec.EphemeralContainers
	p.Spec, p.Status = *old.Spec.DeepCopy(), old.Status
	p.Spec.EphemeralContainers = added
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
	podspec.DropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
}

// prepareResize reverts all changes but those of resources and resize policies. Containers that are added, removed or
// renamed stay, and validation refuses them.
func prepareResize(p, old *corev1.Pod) {
	if len(p.Spec.Containers) == len(old.Spec.Containers) && len(p.Spec.InitContainers) == len(old.Spec.InitContainers) {
		resources := p.Spec.Resources
		containers := withNewResources(p.Spec.Containers, old.Spec.Containers)
		initContainers := withNewResources(p.Spec.InitContainers, old.Spec.InitContainers)
		p.Spec, p.Status = *old.Spec.DeepCopy(), old.Status
		p.Spec.Resources, p.Spec.Containers, p.Spec.InitContainers = resources, containers, initContainers
		metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
	}
	if p.Spec.Resources == nil && old.Spec.Resources != nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
	podspec.DefaultResources(&p.Spec)
	podspec.DropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
}

// withNewResources returns the old containers with the resources and resize policies of the new ones.
func withNewResources(list, old []corev1.Container) []corev1.Container {
	if len(list) == 0 {
		return list
	}
	out := make([]corev1.Container, len(old))
	for i := range old {
		if old[i].Name != list[i].Name {
			return list
		}
		old[i].DeepCopyInto(&out[i])
		out[i].Resources, out[i].ResizePolicy = list[i].Resources, list[i].ResizePolicy
	}
	return out
}
