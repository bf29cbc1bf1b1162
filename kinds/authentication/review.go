package authentication

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

// TokenReviews ask whose token this is.
func TokenReviews() *kind.Def {
	return kind.Define(kind.Resource[authenticationv1.TokenReview]{
		Group: authenticationv1.GroupName, Version: "v1", Kind: "TokenReview", Plural: "tokenreviews", Scope: kind.Cluster, Confidential: true,
		Verbs: []string{"create"},
		Answer: func(ctx context.Context, d kind.Door, r *authenticationv1.TokenReview) error {
			if r.Spec.Token == "" {
				return apierrors.NewBadRequest("token is required for TokenReview in authentication")
			}
			// What the client says of the answer stays where there is none.
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

// SelfSubjectReviews ask who am I.
func SelfSubjectReviews() *kind.Def {
	return kind.Define(kind.Resource[authenticationv1.SelfSubjectReview]{
		Group: authenticationv1.GroupName, Version: "v1", Kind: "SelfSubjectReview", Plural: "selfsubjectreviews", Scope: kind.Cluster,
		Verbs: []string{"create"},
		Answer: func(_ context.Context, d kind.Door, r *authenticationv1.SelfSubjectReview) error {
			u := d.User()
			if u == nil {
				return apierrors.NewBadRequest("no user present on request")
			}
			info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
			for key, values := range u.GetExtra() {
				info.Extra[key] = values
			}
			// Nothing of what was sent comes back.
			*r = authenticationv1.SelfSubjectReview{
				TypeMeta:   r.TypeMeta,
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
				Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: info},
			}
			return nil
		},
	})
}
