package kind

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// NameColumn is the first column of nearly every kind.
func NameColumn[T any, P interface {
	*T
	Object
}]() Column[T] {
	return Column[T]{
		Name: "Name", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		Value: func(o *T) any { return P(o).GetName() },
	}
}

// AgeColumn is the last column of nearly every kind.
func AgeColumn[T any, P interface {
	*T
	Object
}]() Column[T] {
	return Column[T]{
		Name: "Age", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Value: func(o *T) any { return Age(P(o).GetCreationTimestamp()) },
	}
}

// Age returns the time since t as kubectl shows it.
func Age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func createdAt(o Object) string {
	return o.GetCreationTimestamp().Time.UTC().Format(time.RFC3339)
}

// ContainersColumn lists the container names of a pod template in a wide column.
func ContainersColumn[T any](containers func(*T) []corev1.Container) Column[T] {
	return Column[T]{
		Name: "Containers", Wide: true, Description: "Names of each container in the template.",
		Value: func(o *T) any {
			return joinNames(containers(o), func(c corev1.Container) string { return c.Name })
		},
	}
}

// ImagesColumn lists the images of a pod template in a wide column.
func ImagesColumn[T any](containers func(*T) []corev1.Container) Column[T] {
	return Column[T]{
		Name: "Images", Wide: true, Description: "Images referenced by each container in the template.",
		Value: func(o *T) any {
			return joinNames(containers(o), func(c corev1.Container) string { return c.Image })
		},
	}
}

func joinNames(containers []corev1.Container, part func(corev1.Container) string) string {
	parts := make([]string, len(containers))
	for i, c := range containers {
		parts[i] = part(c)
	}
	return strings.Join(parts, ",")
}
