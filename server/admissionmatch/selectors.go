package admissionmatch

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
)

// selectsObject reports whether the object, new or old, has the labels of the selector. For a subresource with a view,
// such as scale, the labels of the view count.
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

// selectsNamespace reports whether the namespace of the write has the labels of the selector. What is in no namespace
// is always selected.
func (c *Criteria) selectsNamespace(ctx context.Context, a *kind.Admission) (bool, error) {
	if c.namespaces.Empty() || Namespace(a) == "" && !isNamespace(a) {
		return true, nil
	}
	if isNamespace(a) {
		// The new object counts, and the old one where the write does not change it.
		obj := a.Object
		if obj == nil || a.Sub != "" && a.Old != nil {
			obj = a.Old
		}
		return obj != nil && c.namespaces.Matches(labels.Set(obj.GetLabels())), nil
	}
	home, err := a.NamespaceObject(ctx)
	if err != nil {
		return false, err
	}
	return c.namespaces.Matches(labels.Set(home.Labels)), nil
}
