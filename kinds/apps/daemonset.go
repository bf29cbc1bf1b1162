package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// DaemonSets keep one pod on each node.
func DaemonSets() *kind.Def {
	spec, status := appsv1.DaemonSetSpec{}.SwaggerDoc(), appsv1.DaemonSetStatus{}.SwaggerDoc()
	number := func(name, doc string, value func(*appsv1.DaemonSetStatus) int32) kind.Column[appsv1.DaemonSet] {
		return kind.Column[appsv1.DaemonSet]{Name: name, Type: "integer", Description: status[doc],
			Value: func(d *appsv1.DaemonSet) any { return int64(value(&d.Status)) }}
	}
	return kind.Define(kind.Resource[appsv1.DaemonSet]{
		Group: "apps", Version: "v1", Kind: "DaemonSet", Plural: "daemonsets",
		Short: []string{"ds"}, Categories: []string{"all"},
		Spec:       func(d *appsv1.DaemonSet) any { return &d.Spec },
		Status:     func(d *appsv1.DaemonSet) any { return &d.Status },
		Generation: true,
		Default:    defaultDaemonSet,
		Prepare:    prepareDaemonSet,
		Validate:   validateDaemonSet,
		Warn:       warnDaemonSet,
		Columns: []kind.Column[appsv1.DaemonSet]{
			kind.NameColumn[appsv1.DaemonSet](),
			number("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
			number("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
			number("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
			number("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
			number("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
			{Name: "Node Selector", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], Value: func(d *appsv1.DaemonSet) any {
				return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)
			}},
			kind.AgeColumn[appsv1.DaemonSet](),
			kind.ContainersColumn(daemonSetContainers),
			kind.ImagesColumn(daemonSetContainers),
			{Name: "Selector", Wide: true, Description: spec["selector"], Value: func(d *appsv1.DaemonSet) any { return metav1.FormatLabelSelector(d.Spec.Selector) }},
		},
		Subs: []kind.Sub[appsv1.DaemonSet]{{Name: "status", Validate: validateDaemonSetStatus}},
	})
}

func daemonSetContainers(d *appsv1.DaemonSet) []corev1.Container {
	return d.Spec.Template.Spec.Containers
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	core.DefaultPodTemplate(&d.Spec.Template)
	update := &d.Spec.UpdateStrategy
	if update.Type == "" {
		update.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if update.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		fill(&update.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		fill(&update.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		fill(&update.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	fill(&d.Spec.RevisionHistoryLimit, 10)
}
