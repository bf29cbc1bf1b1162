package core

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func preparePod(p, old *corev1.Pod) {
	if old != nil {
		keepPodResources(p, old)
		dropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
		dropDisabledStatus(&p.Status, &old.Status)
		return
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	dropDisabledFields(&p.Spec, p.Annotations, nil)
	if len(p.Spec.SchedulingGates) > 0 {
		setPodCondition(&p.Status, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
	mergeLabelKeys(p)
	appArmorFields(p)
	defaultPodResources(&p.Spec)
	p.Status.QOSClass = QOS(&p.Spec)
}

// keepPodResources keeps the resources of the whole pod for clients that do not know the field.
func keepPodResources(p, old *corev1.Pod) {
	if p.Spec.Resources == nil {
		p.Spec.Resources = old.Spec.Resources
	}
}

// podTerms yields every term about other pods.
func podTerms(a *corev1.Affinity) iter.Seq[*corev1.PodAffinityTerm] {
	return func(yield func(*corev1.PodAffinityTerm) bool) {
		var preferred [][]corev1.WeightedPodAffinityTerm
		var required [][]corev1.PodAffinityTerm
		if p := a.PodAffinity; p != nil {
			preferred, required = append(preferred, p.PreferredDuringSchedulingIgnoredDuringExecution), append(required, p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			preferred, required = append(preferred, p.PreferredDuringSchedulingIgnoredDuringExecution), append(required, p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		for _, list := range preferred {
			for i := range list {
				if !yield(&list[i].PodAffinityTerm) {
					return
				}
			}
		}
		for _, list := range required {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// mergeLabelKeys writes the values that the pod's own labels have for the keys in its terms into their
// selectors, so that the scheduler needs to look at selectors only.
func mergeLabelKeys(p *corev1.Pod) {
	merge := func(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if v, set := p.Labels[key]; set && s != nil {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{v}})
			}
		}
	}
	if p.Spec.Affinity != nil {
		for t := range podTerms(p.Spec.Affinity) {
			merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
			merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// appArmorFields sets the field that replaced the AppArmor annotation.
func appArmorFields(p *corev1.Pod) {
	if onWindows(&p.Spec) {
		return
	}
	for _, c := range containersOf(&p.Spec) {
		annotation, set := p.Annotations[appArmorContainer+c.Name]
		if !set || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorProfile(annotation)
		if profile == nil || equality.Semantic.DeepEqual(profile, podAppArmor(&p.Spec)) {
			continue
		}
		orNew(&c.SecurityContext, corev1.SecurityContext{})
		c.SecurityContext.AppArmorProfile = profile
	}
}

func podAppArmor(s *corev1.PodSpec) *corev1.AppArmorProfile {
	if s.SecurityContext == nil {
		return nil
	}
	return s.SecurityContext.AppArmorProfile
}

// appArmorProfile is the profile an annotation names, or nil when it names none that is valid.
func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	var p *corev1.AppArmorProfile
	switch name, local := strings.CutPrefix(annotation, localhostPrefix); {
	case annotation == unconfined:
		p = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == runtimeDefault:
		p = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case local && name != "":
		p = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if len(validateAppArmor(p, nil)) > 0 {
		return nil
	}
	return p
}

func preparePodStatus(p, old *corev1.Pod) {
	p.OwnerReferences = old.OwnerReferences
	s, was := &p.Status, &old.Status
	orElse(&s.QOSClass, was.QOSClass)
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	}
	if s.NodeAllocatableResourceClaimStatuses == nil {
		s.NodeAllocatableResourceClaimStatuses = was.NodeAllocatableResourceClaimStatuses
	}
	orElse(&s.ObservedGeneration, was.ObservedGeneration)
	// A type may occur more than once, so each value is handed on once.
	generations := map[corev1.PodConditionType][]int64{}
	for _, c := range was.Conditions {
		generations[c.Type] = append(generations[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if list := generations[c.Type]; len(list) > 0 {
			orElse(&c.ObservedGeneration, list[0])
			generations[c.Type] = list[1:]
		}
	}
	dropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
	dropDisabledStatus(s, was)
}

// prepareEphemeralContainers keeps everything but the containers that are added.
func prepareEphemeralContainers(p, old *corev1.Pod) {
	added := p.Spec.EphemeralContainers
	p.Spec, p.Status = *old.Spec.DeepCopy(), old.Status
	p.Spec.EphemeralContainers = added
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
	dropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
}

// prepareResize keeps everything but the resources and how they may be changed. An attempt to add, remove
// or rename containers is left for validation to refuse.
func prepareResize(p, old *corev1.Pod) {
	if len(p.Spec.Containers) == len(old.Spec.Containers) && len(p.Spec.InitContainers) == len(old.Spec.InitContainers) {
		resources := p.Spec.Resources
		containers := resized(p.Spec.Containers, old.Spec.Containers)
		initContainers := resized(p.Spec.InitContainers, old.Spec.InitContainers)
		p.Spec, p.Status = *old.Spec.DeepCopy(), old.Status
		p.Spec.Resources, p.Spec.Containers, p.Spec.InitContainers = resources, containers, initContainers
		metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
	}
	if p.Spec.Resources == nil && old.Spec.Resources != nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
	defaultPodResources(&p.Spec)
	dropDisabledFields(&p.Spec, p.Annotations, &old.Spec)
}

// resized is old with the resources of list.
func resized(list, old []corev1.Container) []corev1.Container {
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
