package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/audit"
	"proa.dev/server/authz"
)

// Authorize is hop 3: it returns nil when the user may make the request, and the error for the client otherwise.
func (s *Server) Authorize(ctx context.Context, r *Request) error {
	a := r.ownAttributes()
	return s.AuthorizeAttributes(ctx, &a, r.Audit)
}

// ownAttributes describes the request to the authorizer, with its own verb and what it selects.
func (r *Request) ownAttributes() authz.Attributes {
	a := r.attributes(r.Verb)
	if l := &r.Options.List; r.Verb == "list" || r.Verb == "watch" || r.Verb == "deletecollection" {
		a.Name = l.ExactField("metadata.name")
		if l.Fields != nil {
			a.FieldSelector = l.Fields.Requirements()
		}
		if l.Labels != nil {
			a.LabelSelector, _ = l.Labels.Requirements()
		}
	}
	return a
}

// attributes describes the request to the authorizer, with a verb that may be another one than its own.
func (r *Request) attributes(verb string) authz.Attributes {
	a := authz.Attributes{
		User: r.User, Verb: verb, Namespace: r.Namespace, IsResource: true,
		Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Name: r.Name,
	}
	if r.Sub != nil {
		a.Subresource = r.Sub.Name
	}
	return a
}

// AuthorizeAttributes is hop 3 for a request that is not, or not yet, a Request of the pipeline. The decision is added
// to the audit record.
func (s *Server) AuthorizeAttributes(ctx context.Context, a *authz.Attributes, t *audit.Record) error {
	decision, reason, err := s.Authz.Authorize(ctx, *a)
	t.SetDecision(decision == authz.Allow, reason, err)
	if decision == authz.Allow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return authz.Forbidden(a, reason)
}

// authorizeVerb decides whether the user may use another verb on the same subresource too, as exec over GET needs
// create.
func (s *Server) authorizeVerb(ctx context.Context, r *Request, verb string) error {
	a := r.attributes(verb)
	decision, reason, err := s.Authz.Authorize(ctx, a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if decision != authz.Allow {
		return authz.Forbidden(&a, reason)
	}
	return nil
}

// retryingAuthorizer asks again before it refuses, when the caches of roles are up to date.
type retryingAuthorizer struct {
	RulesReviewer
	authz.Retrying
}

// ForNodes says that the request is a list or watch of a node's agent which is not limited to the objects of that node,
// so that objects are shown in the form that their kind has for nodes (kind.NodeForm). Callers in this process read the
// cache and see whole objects.
func (r *Request) ForNodes() bool {
	form := r.Def.Storage().ForNodes
	// The role of nodes is bound to the whole group, also to a member whose name is not that of a node.
	if form == nil || r.User == nil || r.Verb != "list" && r.Verb != "watch" || !slices.Contains(r.User.GetGroups(), user.NodesGroup) {
		return false
	}
	node, _ := authz.NodeName(r.User)
	return form.Own == "" || node == "" || r.Options.List.ExactField(form.Own) != node
}

// checkNodeSelector refuses field selectors by which a node would learn about fields that it is not shown.
func (r *Request) checkNodeSelector() error {
	if !r.ForNodes() || r.Options.List.Fields == nil {
		return nil
	}
	form := r.Def.Storage().ForNodes
	for _, w := range r.Options.List.Fields.Requirements() {
		if !slices.Contains(form.Fields, w.Field) {
			return apierrors.NewForbidden(r.Def.Resource(), "", fmt.Errorf("nodes may select %s of others only by %s, and not by %s",
				r.Def.Plural, strings.Join(form.Fields, ", "), w.Field))
		}
	}
	return nil
}
