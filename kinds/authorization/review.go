package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// invalid leaves out the kind, as answers to bad questions always did.
func invalid(errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

// SubjectAccessReviews ask whether somebody may do something.
func SubjectAccessReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.SubjectAccessReview]{
		Group: authorizationv1.GroupName, Version: "v1", Kind: "SubjectAccessReview", Plural: "subjectaccessreviews", Scope: kind.Cluster,
		Verbs: []string{"create"},
		Answer: func(ctx context.Context, d kind.Door, r *authorizationv1.SubjectAccessReview) error {
			if errs := validateSubjectReview(r); len(errs) > 0 {
				return invalid(errs)
			}
			r.Status = d.ReviewAccess(ctx, r.Spec)
			return nil
		},
	})
}

// LocalSubjectAccessReviews ask the same about one namespace.
func LocalSubjectAccessReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.LocalSubjectAccessReview]{
		Group: authorizationv1.GroupName, Version: "v1", Kind: "LocalSubjectAccessReview", Plural: "localsubjectaccessreviews",
		Verbs: []string{"create"},
		Answer: func(ctx context.Context, d kind.Door, r *authorizationv1.LocalSubjectAccessReview) error {
			if errs := validateLocalReview(r); len(errs) > 0 {
				return invalid(errs)
			}
			r.Status = d.ReviewAccess(ctx, r.Spec)
			return nil
		},
	})
}

// SelfSubjectAccessReviews ask whether the asking user may do something.
func SelfSubjectAccessReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.SelfSubjectAccessReview]{
		Group: authorizationv1.GroupName, Version: "v1", Kind: "SelfSubjectAccessReview", Plural: "selfsubjectaccessreviews", Scope: kind.Cluster,
		Verbs: []string{"create"},
		Answer: func(ctx context.Context, d kind.Door, r *authorizationv1.SelfSubjectAccessReview) error {
			if errs := validateSelfReview(r); len(errs) > 0 {
				return invalid(errs)
			}
			u := d.User()
			if u == nil {
				return apierrors.NewBadRequest("no user present on request")
			}
			spec := authorizationv1.SubjectAccessReviewSpec{
				ResourceAttributes: r.Spec.ResourceAttributes, NonResourceAttributes: r.Spec.NonResourceAttributes,
				User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{},
			}
			for key, values := range u.GetExtra() {
				spec.Extra[key] = values
			}
			r.Status = d.ReviewAccess(ctx, spec)
			return nil
		},
	})
}

// SelfSubjectRulesReviews list what the asking user may do in a namespace.
func SelfSubjectRulesReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.SelfSubjectRulesReview]{
		Group: authorizationv1.GroupName, Version: "v1", Kind: "SelfSubjectRulesReview", Plural: "selfsubjectrulesreviews", Scope: kind.Cluster,
		Verbs: []string{"create"},
		Answer: func(ctx context.Context, d kind.Door, r *authorizationv1.SelfSubjectRulesReview) error {
			if d.User() == nil {
				return apierrors.NewBadRequest("no user present on request")
			}
			if r.Spec.Namespace == "" {
				return apierrors.NewBadRequest("no namespace on request")
			}
			// Nothing of what was sent comes back.
			*r = authorizationv1.SelfSubjectRulesReview{TypeMeta: r.TypeMeta, Status: d.ReviewRules(ctx, r.Spec.Namespace)}
			return nil
		},
	})
}
