package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// ComponentStatuses are the health of the parts of the control plane. They are computed on request.
func ComponentStatuses() *kind.Def {
	type component = corev1.ComponentStatus
	cell := func(name, description string, value func(corev1.ComponentCondition, bool) string) kind.Column[component] {
		return kind.Column[component]{Name: name, Description: description, Value: func(s *component) any {
			for _, c := range s.Conditions {
				if c.Type == corev1.ComponentHealthy {
					return value(c, true)
				}
			}
			return value(corev1.ComponentCondition{}, false)
		}}
	}
	return kind.Define(kind.Resource[component]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ComponentStatus"}, Plural: "componentstatuses",
			Short: []string{"cs"}, Scope: kind.Cluster,
			Verbs:      []string{"get", "list"},
			Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		},
		Computed: componentStatuses,
		Columns: []kind.Column[component]{
			kind.NameColumn[component](),
			cell("Status", "Status of the component conditions", func(c corev1.ComponentCondition, ok bool) string {
				switch {
				case !ok:
					return "Unknown"
				case c.Status == corev1.ConditionTrue:
					return "Healthy"
				}
				return "Unhealthy"
			}),
			cell("Message", "Message of the component conditions", func(c corev1.ComponentCondition, _ bool) string { return c.Message }),
			cell("Error", "Error of the component conditions", func(c corev1.ComponentCondition, _ bool) string { return c.Error }),
		},
	})
}

// componentStatuses checks the store with a linearizable read. The scheduler and the controllers run in
// the process that answers, so they are healthy.
func componentStatuses(ctx context.Context, d kind.Server, _ kind.Selection) ([]*corev1.ComponentStatus, error) {
	healthy := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	etcd := healthy
	if _, err := d.List(ctx, schema.GroupResource{Resource: "namespaces"}, ""); err != nil {
		etcd.Status, etcd.Message, etcd.Error = corev1.ConditionFalse, "", err.Error()
	}
	status := func(name string, c corev1.ComponentCondition) *corev1.ComponentStatus {
		return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{c}}
	}
	return []*corev1.ComponentStatus{status("controller-manager", healthy), status("scheduler", healthy), status("etcd-0", etcd)}, nil
}
