package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// ReplicaSets keep a number of equal pods.
func ReplicaSets() *kind.Def {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return kind.Define(kind.Resource[appsv1.ReplicaSet]{
		Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets",
		Short: []string{"rs"}, Categories: []string{"all"},
		Spec:       func(r *appsv1.ReplicaSet) any { return &r.Spec },
		Status:     func(r *appsv1.ReplicaSet) any { return &r.Status },
		Generation: true,
		Default: func(r *appsv1.ReplicaSet) {
			core.DefaultPodTemplate(&r.Spec.Template)
			fill(&r.Spec.Replicas, 1)
		},
		Prepare:  prepareReplicaSet,
		Validate: validateReplicaSet,
		Warn:     warnReplicaSet,
		Columns: []kind.Column[appsv1.ReplicaSet]{
			kind.NameColumn[appsv1.ReplicaSet](),
			{Name: "Desired", Type: "integer", Description: spec["replicas"], Value: func(r *appsv1.ReplicaSet) any { return int64(count(r.Spec.Replicas)) }},
			{Name: "Current", Type: "integer", Description: status["replicas"], Value: func(r *appsv1.ReplicaSet) any { return int64(r.Status.Replicas) }},
			{Name: "Ready", Type: "integer", Description: status["readyReplicas"], Value: func(r *appsv1.ReplicaSet) any { return int64(r.Status.ReadyReplicas) }},
			kind.AgeColumn[appsv1.ReplicaSet](),
			kind.ContainersColumn(replicaSetContainers),
			kind.ImagesColumn(replicaSetContainers),
			{Name: "Selector", Wide: true, Description: spec["selector"], Value: func(r *appsv1.ReplicaSet) any { return metav1.FormatLabelSelector(r.Spec.Selector) }},
		},
		Fields: map[string]func(*appsv1.ReplicaSet) string{
			"status.replicas": func(r *appsv1.ReplicaSet) string { return strconv.Itoa(int(r.Status.Replicas)) },
		},
		Subs: []kind.Sub[appsv1.ReplicaSet]{
			{Name: "status", Validate: validateReplicaSetStatus},
			scale("replicasets", func(r *appsv1.ReplicaSet) scaled {
				return scaled{&r.Spec.Replicas, r.Spec.Selector, r.Status.Replicas}
			}),
		},
	})
}

func replicaSetContainers(r *appsv1.ReplicaSet) []corev1.Container {
	return r.Spec.Template.Spec.Containers
}
