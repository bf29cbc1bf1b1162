package authentication

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// fakeServer is a server that knows the user bob and the token "good".
type fakeServer struct{ kind.Server }

func (fakeServer) User() user.Info {
	return &user.DefaultInfo{Name: "bob", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
}

func (fakeServer) ReviewToken(_ context.Context, s authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{Authenticated: s.Token == "good"}
}

func TestTokenReview(t *testing.T) {
	d := TokenReviews()
	if err := d.Answer(t.Context(), fakeServer{}, &authenticationv1.TokenReview{}); err == nil ||
		err.Error() != "token is required for TokenReview in authentication" {
		t.Errorf("got %v", err)
	}
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "good"}}
	if err := d.Answer(t.Context(), fakeServer{}, r); err != nil || !r.Status.Authenticated {
		t.Errorf("got %v, %+v", err, r.Status)
	}
}

func TestSelfSubjectReview(t *testing.T) {
	r := &authenticationv1.SelfSubjectReview{}
	r.Name = "dropped"
	if err := SelfSubjectReviews().Answer(t.Context(), fakeServer{}, r); err != nil {
		t.Fatal(err)
	}
	u := r.Status.UserInfo
	if r.Name != "" || r.CreationTimestamp.IsZero() || u.Username != "bob" || u.UID != "u" || u.Groups[0] != "g" || u.Extra["k"][0] != "v" {
		t.Errorf("got %+v", r)
	}
}
