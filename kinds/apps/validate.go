package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func nameStatefulSet(name string, prefix bool) []string {
	return validation.NameIsDNSSubdomain(name, prefix)
}

func defaultClaims([]corev1.PersistentVolumeClaim) {}

func prepareDeployment(d, old *appsv1.Deployment)                  {}
func validateDeployment(d, old *appsv1.Deployment) field.ErrorList { return nil }
func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	return nil
}
func warnDeployment(d, old *appsv1.Deployment) []string            { return nil }
func prepareReplicaSet(d, old *appsv1.ReplicaSet)                  {}
func validateReplicaSet(d, old *appsv1.ReplicaSet) field.ErrorList { return nil }
func validateReplicaSetStatus(d, old *appsv1.ReplicaSet) field.ErrorList {
	return nil
}
func warnReplicaSet(d, old *appsv1.ReplicaSet) []string              { return nil }
func prepareStatefulSet(d, old *appsv1.StatefulSet)                  {}
func validateStatefulSet(d, old *appsv1.StatefulSet) field.ErrorList { return nil }
func validateStatefulSetStatus(d, old *appsv1.StatefulSet) field.ErrorList {
	return nil
}
func warnStatefulSet(d, old *appsv1.StatefulSet) []string        { return nil }
func prepareDaemonSet(d, old *appsv1.DaemonSet)                  {}
func validateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList { return nil }
func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	return nil
}
func warnDaemonSet(d, old *appsv1.DaemonSet) []string                              { return nil }
func validateControllerRevision(d, old *appsv1.ControllerRevision) field.ErrorList { return nil }
