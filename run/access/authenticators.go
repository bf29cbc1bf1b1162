// Package access puts together who users are and what they may do: the authenticators of users that are not part of the cluster, and
// the chain of authorizers. Both can be replaced while the server runs, when the files that configure them change.
package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/run/settings"
	"proa.dev/run/webhookclient"
	"proa.dev/server/authn"
	"proa.dev/server/authn/issuer"
)

// ExternalUsers knows the users that are not part of the cluster: those of a token file, of OpenID Connect issuers and of a token webhook.
type ExternalUsers struct {
	config    *settings.Config
	log       *slog.Logger
	verifier  atomic.Pointer[issuer.Verifier] // nil if no issuer is trusted
	anonymous atomic.Pointer[func(*http.Request) bool]
}

// NewExternalUsers reads the settings, and returns with the users the functions that verify their tokens.
func NewExternalUsers(c *settings.Config, log *slog.Logger) (*ExternalUsers, []authn.TokenFunc, error) {
	u := &ExternalUsers{config: c, log: log}
	var verify []authn.TokenFunc
	listed, err := c.ReadTokens()
	if err != nil {
		return nil, nil, err
	}
	if listed != nil {
		verify = append(verify, listed)
	}
	if err := u.ReloadIssuers(); err != nil {
		return nil, nil, err
	}
	verify = append(verify, u.verify)
	if c.Identity.Hook != "" {
		h, err := webhookclient.Open(c.Identity.Hook, time.Minute)
		if err != nil {
			return nil, nil, fmt.Errorf("authentication-token-webhook-config-file: %w", err)
		}
		w := &authn.Webhook{Post: h.Post, Version: c.Identity.HookVersion, CacheTTL: c.Identity.HookKeep}
		verify = append(verify, w.Verify)
	}
	return u, verify, nil
}

// ReloadIssuers reads again which issuers are trusted, and which requests may come without credentials.
func (u *ExternalUsers) ReloadIssuers() error {
	c, err := u.config.ReadIssuers()
	if err != nil {
		return err
	}
	var file *api.AnonymousAuthConfig
	var v *issuer.Verifier
	if c != nil {
		file = c.Anonymous
		if v, err = issuer.New(c, u.log, nil); err != nil {
			return err
		}
	}
	anonymous := anonymousRequests(u.config.Identity.Anonymous, file)
	u.anonymous.Store(&anonymous)
	u.verifier.Store(v)
	return nil
}

// verify checks a token with the issuers that are trusted now.
func (u *ExternalUsers) verify(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	v := u.verifier.Load()
	if v == nil {
		return nil, nil, false, nil
	}
	return v.Verify(ctx, token, audiences)
}

// AllowsAnonymous tells whether a request may come without credentials.
func (u *ExternalUsers) AllowsAnonymous(r *http.Request) bool { return (*u.anonymous.Load())(r) }

// anonymousRequests returns the predicate that tells which requests may come without credentials.
func anonymousRequests(flag *bool, file *api.AnonymousAuthConfig) func(*http.Request) bool {
	everywhere := func(*http.Request) bool { return true }
	nowhere := func(*http.Request) bool { return false }
	switch {
	case file != nil && !file.Enabled, file == nil && flag != nil && !*flag:
		return nowhere
	case file != nil && len(file.Conditions) > 0:
		return func(r *http.Request) bool {
			return slices.ContainsFunc(file.Conditions, func(c api.AnonymousAuthCondition) bool {
				return c.Path == r.URL.Path
			})
		}
	case file != nil, flag != nil:
		return everywhere
	}
	return authn.PublicPaths
}

// Authenticator answers TokenReviews and TokenRequests beside what authn's does.
type Authenticator struct{ *authn.Authenticator }

// Review answers a TokenReview.
func (a Authenticator) Review(ctx context.Context, spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	who, audiences, ok, err := a.ReviewToken(ctx, spec.Token, spec.Audiences)
	st := authenticationv1.TokenReviewStatus{Authenticated: ok && err == nil}
	if err != nil {
		st.Error = err.Error()
	}
	if !st.Authenticated {
		return st
	}
	st.Audiences = audiences
	st.User = authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	if len(who.GetExtra()) > 0 {
		st.User.Extra = map[string]authenticationv1.ExtraValue{}
		for k, v := range who.GetExtra() {
			st.User.Extra[k] = v
		}
	}
	return st
}

// Issue answers a TokenRequest.
func (a Authenticator) Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error {
	granted, err := a.TokenRequest(ctx, account.Namespace, account.Name, request)
	if err != nil {
		return err
	}
	*request = *granted.Request
	return nil
}
