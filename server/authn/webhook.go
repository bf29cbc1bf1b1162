package authn

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/expirycache"
)

// Webhook verifies tokens by sending TokenReviews to a webhook.
type Webhook struct {
	// Post sends a TokenReview and returns the response.
	Post func(ctx context.Context, body []byte) ([]byte, error)
	// Version is the version of the TokenReview, v1 or v1beta1.
	Version string
	// CacheTTL is how long an answer is cached. 0 disables the cache.
	CacheTTL time.Duration

	answers expirycache.Cache[[sha256.Size]byte, authenticationv1.TokenReviewStatus]
}

const (
	// maxUser is the size of the largest answer of a webhook. The user in it is part of every audit event and question about the user.
	maxUser = 512 << 10
	// maxError is the length of the longest error of a webhook that is shown.
	maxError = 4 << 10
)

// Verify is a TokenFunc.
func (w *Webhook) Verify(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	status, err := w.ask(ctx, token, audiences)
	if err != nil {
		return nil, nil, false, err
	}
	if !status.Authenticated {
		if status.Error != "" {
			err = errors.New(status.Error[:min(len(status.Error), maxError)])
		}
		return nil, nil, false, err
	}
	who := &user.DefaultInfo{Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups}
	if len(status.User.Extra) > 0 {
		who.Extra = map[string][]string{}
		for k, v := range status.User.Extra {
			who.Extra[k] = v
		}
	}
	if len(status.Audiences) == 0 {
		return who, nil, true, nil // the webhook knows no audiences, so the token is for those of this server
	}
	accepted := intersect(status.Audiences, audiences)
	if len(accepted) == 0 && len(audiences) > 0 {
		return nil, nil, false, nil
	}
	return who, accepted, true, nil
}

// ask returns the cached answer, or asks the webhook. A failure is not cached.
func (w *Webhook) ask(ctx context.Context, token string, audiences []string) (authenticationv1.TokenReviewStatus, error) {
	key := sha256.Sum256([]byte(strings.Join(audiences, "\x00") + "\x00\x00" + token))
	now := time.Now()
	if status, cached := w.answers.Get(key, now); cached {
		return status, nil
	}
	review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
	review.Kind, review.APIVersion = "TokenReview", authenticationv1.GroupName+"/"+w.Version
	body, err := json.Marshal(review)
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	text, err := w.Post(ctx, body)
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("ask the webhook about a token: %w", err)
	}
	if len(text) > maxUser {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("the webhook answered about a token with more than %d bytes", maxUser)
	}
	var answer authenticationv1.TokenReview
	if err := json.Unmarshal(text, &answer); err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("read what the webhook says about a token: %w", err)
	}
	if answer.Kind != "TokenReview" {
		return authenticationv1.TokenReviewStatus{}, errors.New("the webhook answered with something else than a TokenReview")
	}
	if w.CacheTTL > 0 {
		w.answers.Put(key, answer.Status, len(text), now.Add(w.CacheTTL), now)
	}
	return answer.Status, nil
}
