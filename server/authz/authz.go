// Package authz is hop 3 of 12: it decides whether an identity may do what it asks for.
//
// The package owns the questions (Attributes), the answers (Decision) and the two authorizers that answer from the
// cluster's own objects: Node, which limits a node agent to the pods placed on its node, and RBAC. It also owns what
// follows from RBAC's rules: who may write which role or binding (Guard), what an aggregated ClusterRole contains
// (Aggregate), and the answers to access reviews. It stores nothing and watches nothing: it reads through the small
// interfaces Rules and Cluster, which its caller implements.
package authz

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Attributes is one question: may User do Verb on this. It is passed by value, so that the call through an interface
// does not move it to the heap.
type Attributes struct {
	User user.Info
	// Verb is the API verb of a resource request, or the lower-case HTTP method of any other request.
	Verb string
	// Namespace to Name describe a resource request; Name is empty where the request names no object
	// (create, list, deletecollection).
	Namespace, Group, Version, Resource, Subresource, Name string
	// Path is the URL path; it decides requests that are not for a resource.
	Path string
	// IsResource says whether the request is for a resource.
	IsResource bool

	// FieldSelector and LabelSelector narrow a list, watch or deletecollection. A selector that could not be parsed
	// leaves its error beside it. Ignoring a requirement is safe, because it only widens the request that is
	// authorized.
	FieldSelector      fields.Requirements
	FieldSelectorError error
	LabelSelector      labels.Requirements
	LabelSelectorError error
}

// ParseSelectors sets the selectors from their query parameters. Parse errors are recorded, not returned.
func (a *Attributes) ParseSelectors(field, label string) {
	if field != "" {
		selector, err := fields.ParseSelector(field)
		if err != nil {
			a.FieldSelectorError = err
		} else {
			a.FieldSelector = selector.Requirements()
		}
	}
	if label != "" {
		selector, err := labels.Parse(label)
		if err != nil {
			a.LabelSelectorError = err
		} else {
			a.LabelSelector, _ = selector.Requirements()
		}
	}
}

// Decision is the answer of an authorizer. The zero value allows nothing.
type Decision int

const (
	// NoOpinion leaves the question to the next authorizer; if no other follows, the request is not allowed.
	NoOpinion Decision = iota
	// Allow ends the chain: the request is allowed.
	Allow
	// Deny ends the chain: the request is not allowed.
	Deny
)

func (d Decision) String() string {
	switch d {
	case Allow:
		return "Allow"
	case Deny:
		return "Deny"
	default:
		return "NoOpinion"
	}
}

// Authorizer answers questions. The reason explains the decision to people: it ends up in audit events, in access
// reviews and in the text of a 403 response. An error with any decision but Allow means that the question could not be
// answered, which is not the same as a denial.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (decision Decision, reason string, err error)
}

// Func is a function that is an Authorizer.
type Func func(ctx context.Context, a Attributes) (Decision, string, error)

// Authorize calls f.
func (f Func) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	return f(ctx, a)
}

// Named is an authorizer with the name under which its reasons appear in a 403 response.
type Named struct {
	Name string
	Authorizer
}

// Chain asks its authorizers in order until one of them returns Allow or Deny.
type Chain []Named

// New returns the standard chain: members of system:masters may do everything, then Node, then RBAC.
// Further authorizers (a webhook) are appended by the caller.
func New(node *Node, rbac *RBAC) Chain {
	return Chain{
		{Name: "kubernetes.io/system-privileged-group", Authorizer: Func(allowMasters)},
		{Name: "node", Authorizer: node},
		{Name: "rbac", Authorizer: rbac},
	}
}

// errNoUser is the error for a request that skipped authentication; the wording is upstream's.
var errNoUser = errors.New("no user on request.")

// Authorize asks the chain. When no authorizer decides, the reasons of all are joined, each after the name of its
// authorizer.
func (c Chain) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	if a.User == nil {
		return NoOpinion, "", errNoUser
	}
	var reasons []string
	var errs []error
	for i := range c {
		decision, reason, err := c[i].Authorizer.Authorize(ctx, a)
		if decision != NoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, c[i].Name+": "+reason)
		}
	}
	return NoOpinion, strings.Join(reasons, "\n"), aggregate(errs)
}

func allowMasters(_ context.Context, a Attributes) (Decision, string, error) {
	if IsMaster(a.User) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// IsMaster reports whether u belongs to system:masters, the group that no policy can restrict.
func IsMaster(u user.Info) bool {
	return u != nil && contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

func contains(list []string, item string) bool {
	for _, s := range list {
		if s == item {
			return true
		}
	}
	return false
}

// aggregate joins errors in upstream's format. It is utilerrors.NewAggregate without its typed nil.
func aggregate(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}
