package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// Deployments roll replica sets from one template to the next.
func Deployments() *kind.Def {
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	return kind.Define(kind.Resource[appsv1.Deployment]{
		Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments",
		Short: []string{"deploy"}, Categories: []string{"all"},
		Spec:   func(d *appsv1.Deployment) any { return &d.Spec },
		Status: func(d *appsv1.Deployment) any { return &d.Status },
		// Annotations are copied to replica sets, so a change of them is a change to roll out.
		Generation: true,
		Changed: func(d, old *appsv1.Deployment) bool {
			return !equality.Semantic.DeepEqual(d.Annotations, old.Annotations)
		},
		Default:  defaultDeployment,
		Prepare:  prepareDeployment,
		Validate: validateDeployment,
		Warn:     warnDeployment,
		Columns: []kind.Column[appsv1.Deployment]{
			kind.NameColumn[appsv1.Deployment](),
			{Name: "Ready", Description: "Number of the pod with ready state", Value: func(d *appsv1.Deployment) any {
				return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, count(d.Spec.Replicas))
			}},
			{Name: "Up-to-date", Description: status["updatedReplicas"], Value: func(d *appsv1.Deployment) any { return int64(d.Status.UpdatedReplicas) }},
			{Name: "Available", Description: status["availableReplicas"], Value: func(d *appsv1.Deployment) any { return int64(d.Status.AvailableReplicas) }},
			kind.AgeColumn[appsv1.Deployment](),
			kind.ContainersColumn(deploymentContainers),
			kind.ImagesColumn(deploymentContainers),
			{Name: "Selector", Wide: true, Description: appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], Value: func(d *appsv1.Deployment) any {
				selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
				if err != nil {
					return "<invalid>"
				}
				return selector.String()
			}},
		},
		Subs: []kind.Sub[appsv1.Deployment]{
			{Name: "status", Validate: validateDeploymentStatus, Reset: []string{"spec", "metadata.labels"},
				Prepare: func(d, old *appsv1.Deployment) { d.Labels = old.Labels }},
			scale("deployments", func(d *appsv1.Deployment) scaled {
				return scaled{&d.Spec.Replicas, d.Spec.Selector, d.Status.Replicas}
			}),
		},
	})
}

func deploymentContainers(d *appsv1.Deployment) []corev1.Container {
	return d.Spec.Template.Spec.Containers
}

func defaultDeployment(d *appsv1.Deployment) {
	core.DefaultPodTemplate(&d.Spec.Template)
	fill(&d.Spec.Replicas, 1)
	fill(&d.Spec.RevisionHistoryLimit, 10)
	fill(&d.Spec.ProgressDeadlineSeconds, 600)
	s := &d.Spec.Strategy
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	if s.RollingUpdate == nil {
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	fill(&s.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
	fill(&s.RollingUpdate.MaxSurge, intstr.FromString("25%"))
}
