package validate

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// ownerPermissions requires the permission to delete an object for a change of its owner references, because the object
// is deleted with its owner. An owner reference that blocks the deletion of the owner requires the permission to set
// finalizers on the owner, which would have the same effect.
func ownerPermissions(ctx context.Context, a *kind.Admission) error {
	if a.Object == nil || a.Def.Resource() == (schema.GroupResource{Resource: "pods"}) && a.Sub == "status" {
		return nil
	}
	refs := a.Object.GetOwnerReferences()
	var was []metav1.OwnerReference
	if a.Old != nil {
		was = a.Old.GetOwnerReferences()
	}
	same := func(x, y metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(x, y) }
	if slices.EqualFunc(refs, was, same) {
		return nil
	}
	if a.Verb != "create" {
		st := a.Authorize(ctx, authorizationv1.ResourceAttributes{
			Verb: "delete", Namespace: a.Namespace, Group: a.Def.Group, Version: a.Def.Version, Resource: a.Def.Plural, Subresource: a.Sub,
			Name: a.Name,
		})
		if !st.Allowed {
			return a.Forbidf("cannot set an ownerRef on a resource you can't delete: %s", reasonOf(st))
		}
	}
	holding := newlyBlocking(refs, was)
	anything := authorizationv1.ResourceAttributes{Verb: "update", Group: "*", Version: "*", Resource: "*", Subresource: "finalizers",
		Name: "*"}
	if len(holding) == 0 || a.Authorize(ctx, anything).Allowed {
		return nil
	}
	for _, ref := range holding {
		if err := checkMayBlock(ctx, a, &ref); err != nil {
			return a.Forbid(err)
		}
	}
	return nil
}

// newlyBlocking returns the references that block the deletion of their owner and did not before.
func newlyBlocking(refs, was []metav1.OwnerReference) (out []metav1.OwnerReference) {
	holds := func(r metav1.OwnerReference) bool { return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion }
	for _, ref := range refs {
		before := func(old metav1.OwnerReference) bool { return old.UID == ref.UID && holds(old) }
		if holds(ref) && !slices.ContainsFunc(was, before) {
			out = append(out, ref)
		}
	}
	return out
}

func checkMayBlock(ctx context.Context, a *kind.Admission, ref *metav1.OwnerReference) error {
	def := a.Kind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if def == nil {
		return fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: no matches for kind %q in version %q",
			ref.APIVersion, ref.Kind, ref.Kind, ref.APIVersion)
	}
	what := authorizationv1.ResourceAttributes{
		Verb: "update", Group: def.Group, Version: def.Version, Resource: def.Plural, Subresource: "finalizers", Name: ref.Name,
	}
	if def.Scope == kind.Namespaced {
		what.Namespace = a.Namespace // a namespaced owner is in the namespace of its dependents
	}
	if st := a.Authorize(ctx, what); !st.Allowed {
		return fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %s", reasonOf(st))
	}
	return nil
}

// reasonOf returns a denial of hop 3 in upstream's words.
func reasonOf(st authorizationv1.SubjectAccessReviewStatus) string {
	if st.EvaluationError == "" {
		return st.Reason + ", <nil>"
	}
	return st.Reason + ", " + st.EvaluationError
}
