package match

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
)

// selectsObject says whether the object, as it is or as it was, has the labels that are asked for. What is projected, such as a
// scale, has the labels of the projection.
func (c *Criteria) selectsObject(a *kind.Admission) bool {
	if c.objects.Empty() {
		return true
	}
	has := func(obj kind.Object) bool {
		if obj == nil {
			return false
		}
		if s := a.Def.Sub(a.Sub); s != nil && s.View != nil {
			view, err := s.View(obj)
			if err != nil {
				return false
			}
			obj = view
		}
		return c.objects.Matches(labels.Set(obj.GetLabels()))
	}
	return has(a.Object) || has(a.Old)
}

// selectsNamespace says whether the namespace of the write has the labels that are asked for. What is in no namespace is always selected.
func (c *Criteria) selectsNamespace(ctx context.Context, a *kind.Admission) (bool, error) {
	if c.namespaces.Empty() || Namespace(a) == "" && !isNamespace(a) {
		return true, nil
	}
	if isNamespace(a) {
		// What it will be counts, and what it is where it does not change.
		obj := a.Object
		if obj == nil || a.Sub != "" && a.Old != nil {
			obj = a.Old
		}
		return obj != nil && c.namespaces.Matches(labels.Set(obj.GetLabels())), nil
	}
	home, err := a.Home(ctx)
	if err != nil {
		return false, err
	}
	return c.namespaces.Matches(labels.Set(home.Labels)), nil
}
