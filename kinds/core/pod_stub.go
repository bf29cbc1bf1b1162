package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func podWarnings(path *field.Path, s *corev1.PodSpec, meta *metav1.ObjectMeta, oldSpec *corev1.PodSpec, oldMeta *metav1.ObjectMeta) []string {
	return nil
}
func dropDisabledFields(s *corev1.PodSpec, annotations map[string]string, old *corev1.PodSpec) {}
