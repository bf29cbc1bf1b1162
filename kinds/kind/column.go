package kind

import (
	"time"

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

// Age is the time since t as people read it.
func Age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func createdAt(o Object) string {
	return o.GetCreationTimestamp().Time.UTC().Format(time.RFC3339)
}
