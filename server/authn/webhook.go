package authn

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Webhook asks somebody else whose a token is.
type Webhook struct {
	// Post sends a TokenReview and returns the answer.
	Post func(ctx context.Context, body []byte) ([]byte, error)
	// Version is that of the TokenReview, v1 or v1beta1.
	Version string
	// Keep is how long an answer is good. 0 asks each time.
	Keep time.Duration

	mu   sync.Mutex // guards kept
	kept map[[sha256.Size]byte]answer
}

// answer is what was said about a token, and until when it is good.
type answer struct {
	status authenticationv1.TokenReviewStatus
	until  time.Time
}

// maxAnswers bounds the memory of answers.
const maxAnswers = 8192

// Verify is a TokenFunc.
func (w *Webhook) Verify(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	status, err := w.ask(ctx, token, audiences)
	if err != nil {
		return nil, nil, false, err
	}
	if !status.Authenticated {
		if status.Error != "" {
			err = errors.New(status.Error)
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
		return who, nil, true, nil // it knows no audiences, so the token is for those of this server
	}
	accepted := intersect(status.Audiences, audiences)
	if len(accepted) == 0 && len(audiences) > 0 {
		return nil, nil, false, nil
	}
	return who, accepted, true, nil
}

// ask returns a remembered answer, or asks. A failure to answer is not remembered.
func (w *Webhook) ask(ctx context.Context, token string, audiences []string) (authenticationv1.TokenReviewStatus, error) {
	key := sha256.Sum256([]byte(strings.Join(audiences, "\x00") + "\x00\x00" + token))
	now := time.Now()
	w.mu.Lock()
	had, found := w.kept[key]
	w.mu.Unlock()
	if found && now.Before(had.until) {
		return had.status, nil
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
	var said authenticationv1.TokenReview
	if err := json.Unmarshal(text, &said); err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("read what the webhook says about a token: %w", err)
	}
	if said.Kind != "TokenReview" {
		return authenticationv1.TokenReviewStatus{}, errors.New("the webhook answered with something else than a TokenReview")
	}
	if w.Keep > 0 {
		w.remember(key, answer{said.Status, now.Add(w.Keep)}, now)
	}
	return said.Status, nil
}

func (w *Webhook) remember(key [sha256.Size]byte, a answer, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept == nil {
		w.kept = map[[sha256.Size]byte]answer{}
	}
	if len(w.kept) >= maxAnswers {
		for k, old := range w.kept {
			if !now.Before(old.until) {
				delete(w.kept, k)
			}
		}
		for k := range w.kept { // in no order, so any will do
			if len(w.kept) < maxAnswers {
				break
			}
			delete(w.kept, k)
		}
	}
	w.kept[key] = a
}
