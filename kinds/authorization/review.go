package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// invalid returns an Invalid error without a kind, as upstream does for reviews.
func invalid(errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

// SubjectAccessReviews authorize a request of any user.
func SubjectAccessReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.SubjectAccessReview]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: "v1", Kind: "SubjectAccessReview"},
			Plural:           "subjectaccessreviews", Scope: kind.Cluster,
			Verbs: []string{"create"},
		},
		Answer: func(ctx context.Context, d kind.Server, r *authorizationv1.SubjectAccessReview) error {
			if errs := validateSubjectReview(r); len(errs) > 0 {
				return invalid(errs)
			}
			r.Status = d.ReviewAccess(ctx, r.Spec)
			return nil
		},
	})
}

// LocalSubjectAccessReviews authorize a request of any user in one namespace.
func LocalSubjectAccessReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.LocalSubjectAccessReview]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: "v1", Kind: "LocalSubjectAccessReview"},
			Plural:           "localsubjectaccessreviews",
			Verbs:            []string{"create"},
		},
		Answer: func(ctx context.Context, d kind.Server, r *authorizationv1.LocalSubjectAccessReview) error {
			if errs := validateLocalReview(r); len(errs) > 0 {
				return invalid(errs)
			}
			r.Status = d.ReviewAccess(ctx, r.Spec)
			return nil
		},
	})
}

// SelfSubjectAccessReviews authorize a request of the user who asks.
func SelfSubjectAccessReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.SelfSubjectAccessReview]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: "v1", Kind: "SelfSubjectAccessReview"},
			Plural:           "selfsubjectaccessreviews", Scope: kind.Cluster,
			Verbs: []string{"create"},
		},
		Answer: func(ctx context.Context, d kind.Server, r *authorizationv1.SelfSubjectAccessReview) error {
			if errs := validateSelfReview(r); len(errs) > 0 {
				return invalid(errs)
			}
			u := d.User()
			if u == nil {
				return apierrors.NewBadRequest("no user present on request")
			}
			spec := kind.AccessReview(u, r.Spec.ResourceAttributes)
			spec.NonResourceAttributes = r.Spec.NonResourceAttributes
			r.Status = d.ReviewAccess(ctx, spec)
			return nil
		},
	})
}

// SelfSubjectRulesReviews list what the user who asks may do in a namespace.
func SelfSubjectRulesReviews() *kind.Def {
	return kind.Define(kind.Resource[authorizationv1.SelfSubjectRulesReview]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: "v1", Kind: "SelfSubjectRulesReview"},
			Plural:           "selfsubjectrulesreviews", Scope: kind.Cluster,
			Verbs: []string{"create"},
		},
		Answer: func(ctx context.Context, d kind.Server, r *authorizationv1.SelfSubjectRulesReview) error {
			if d.User() == nil {
				return apierrors.NewBadRequest("no user present on request")
			}
			if r.Spec.Namespace == "" {
				return apierrors.NewBadRequest("no namespace on request")
			}
			// The answer has nothing of the request.
			*r = authorizationv1.SelfSubjectRulesReview{TypeMeta: r.TypeMeta, Status: d.ReviewRules(ctx, r.Spec.Namespace)}
			return nil
		},
	})
}
