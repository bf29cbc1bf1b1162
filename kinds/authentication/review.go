package authentication

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// TokenReviews authenticate a token.
func TokenReviews() *kind.Def {
	return kind.Define(kind.Resource[authenticationv1.TokenReview]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: authenticationv1.GroupName, Version: "v1", Kind: "TokenReview"},
			Plural:           "tokenreviews", Scope: kind.Cluster, Confidential: true,
			Verbs: []string{"create"},
		},
		Answer: func(ctx context.Context, d kind.Server, r *authenticationv1.TokenReview) error {
			if r.Spec.Token == "" {
				return apierrors.NewBadRequest("token is required for TokenReview in authentication")
			}
			// Fields of the status that the answer does not set keep what the client sent.
			found := d.ReviewToken(ctx, r.Spec)
			r.Status.Authenticated = found.Authenticated
			if found.Error != "" {
				r.Status.Error = found.Error
			}
			if found.Authenticated {
				r.Status.User, r.Status.Audiences = found.User, found.Audiences
			}
			return nil
		},
	})
}

// SelfSubjectReviews return the user of the request.
func SelfSubjectReviews() *kind.Def {
	return kind.Define(kind.Resource[authenticationv1.SelfSubjectReview]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: authenticationv1.GroupName, Version: "v1", Kind: "SelfSubjectReview"},
			Plural:           "selfsubjectreviews", Scope: kind.Cluster,
			Verbs: []string{"create"},
		},
		Answer: func(_ context.Context, d kind.Server, r *authenticationv1.SelfSubjectReview) error {
			u := d.User()
			if u == nil {
				return apierrors.NewBadRequest("no user present on request")
			}
			info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(),
				Extra: map[string]authenticationv1.ExtraValue{}}
			for key, values := range u.GetExtra() {
				info.Extra[key] = values
			}
			// The answer has nothing of the request.
			*r = authenticationv1.SelfSubjectReview{
				TypeMeta:   r.TypeMeta,
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
				Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: info},
			}
			return nil
		},
	})
}
