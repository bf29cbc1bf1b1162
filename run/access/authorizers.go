package access

import (
	"context"
	"fmt"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/run/webhookclient"
	"proa.dev/server/authz"
	"proa.dev/server/authz/authzconfig"
)

// Authorizers is the chain of authorizers of the server. It can be replaced while the server runs.
type Authorizers struct {
	node  *authz.Node
	rbac  *authz.RBAC
	chain atomic.Pointer[authz.Chain]
}

// NewAuthorizers returns a chain that has no authorizers yet; see Set.
func NewAuthorizers(node *authz.Node, rbac *authz.RBAC) *Authorizers {
	return &Authorizers{node: node, rbac: rbac}
}

// Authorize asks the authorizers in their order.
func (d *Authorizers) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	return d.chain.Load().Authorize(ctx, a)
}

// Review lists what a user may do.
func (d *Authorizers) Review(u user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	return d.chain.Load().ReviewRules(u, namespace)
}

// Set replaces the authorizers. Members of system:masters may do everything, whatever the others say.
func (d *Authorizers) Set(steps []authzconfig.Step) error {
	chain := authz.New(d.node, d.rbac)[:1]
	for _, s := range steps {
		var next authz.Authorizer
		switch s.Type {
		case "Node":
			next = d.node
		case "RBAC":
			next = d.rbac
		case "AlwaysAllow":
			next = authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) { return authz.Allow, "", nil })
		case "AlwaysDeny":
			next = authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) {
				return authz.NoOpinion, "Everything is forbidden.", nil
			})
		case authzconfig.Webhook:
			h, err := webhookclient.Open(s.Kubeconfig, s.Timeout)
			if err != nil {
				return fmt.Errorf("authorizer %s: %w", s.Name, err)
			}
			w := &authz.Webhook{Post: h.Post, Version: s.Version, Match: s.Match, AllowedTTL: s.AllowedTTL, DeniedTTL: s.DeniedTTL}
			if s.Deny {
				w.OnFailure = authz.Deny
			}
			next = w
		}
		chain = append(chain, authz.Named{Name: s.Name, Authorizer: next})
	}
	d.chain.Store(&chain)
	return nil
}
