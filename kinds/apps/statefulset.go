package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/core/volumekind"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// StatefulSets keep pods with stable names and volumes of their own.
func StatefulSets() *kind.Def {
	return kind.Define(kind.Resource[appsv1.StatefulSet]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, Plural: "statefulsets",
			Short: []string{"sts"}, Categories: []string{"all"},
			Generation: true,
		},
		Name:     validation.NameIsDNSLabel,
		Spec:     func(s *appsv1.StatefulSet) any { return &s.Spec },
		Status:   func(s *appsv1.StatefulSet) any { return &s.Status },
		Default:  defaultStatefulSet,
		Prepare:  prepareStatefulSet,
		Validate: validateStatefulSet,
		Warn:     warnStatefulSet,
		Ready: func(s *appsv1.StatefulSet) bool {
			st, want := &s.Status, ptr.Deref(s.Spec.Replicas, 1)
			return st.ObservedGeneration == s.Generation && st.UpdateRevision == st.CurrentRevision && st.Replicas == want &&
				st.AvailableReplicas == want
		},
		Columns: []kind.Column[appsv1.StatefulSet]{
			kind.NameColumn[appsv1.StatefulSet](),
			{Name: "Ready", Description: "Number of the pod with ready state", Value: func(s *appsv1.StatefulSet) any {
				return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
			}},
			kind.AgeColumn[appsv1.StatefulSet](),
			kind.ContainersColumn(statefulSetContainers),
			kind.ImagesColumn(statefulSetContainers),
		},
		Subs: []kind.Sub[appsv1.StatefulSet]{
			{Name: "status", Validate: validateStatefulSetStatus},
			scale(func(s *appsv1.StatefulSet) scaled {
				return scaled{&s.Spec.Replicas, s.Spec.Selector, s.Status.Replicas}
			}),
		},
	})
}

func statefulSetTemplate(o *appsv1.StatefulSet) *corev1.PodTemplateSpec {
	if o == nil {
		return nil
	}
	return &o.Spec.Template
}

func statefulSetContainers(s *appsv1.StatefulSet) []corev1.Container {
	return s.Spec.Template.Spec.Containers
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	podspec.DefaultTemplate(&s.Spec.Template)
	for i := range s.Spec.VolumeClaimTemplates {
		c := &s.Spec.VolumeClaimTemplates[i]
		volumekind.DefaultClaim(c)
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
	}
	if s.Spec.PodManagementPolicy == "" {
		s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	update := &s.Spec.UpdateStrategy
	if update.Type == "" {
		update.Type = appsv1.RollingUpdateStatefulSetStrategyType
		defaulting.IfNil(&update.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if update.Type == appsv1.RollingUpdateStatefulSetStrategyType && update.RollingUpdate != nil {
		defaulting.IfNil(&update.RollingUpdate.Partition, 0)
		defaulting.IfNil(&update.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	defaulting.IfNil(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, when := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted,
		&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled,
	} {
		if *when == "" {
			*when = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	defaulting.IfNil(&s.Spec.Replicas, 1)
	defaulting.IfNil(&s.Spec.RevisionHistoryLimit, 10)
}

func prepareStatefulSet(s, old *appsv1.StatefulSet) {
	podspec.DropDisabledTemplateFields(&s.Spec.Template, statefulSetTemplate(old))
}
