package authz

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ForCEL adapts an Authorizer to the interface of k8s.io/apiserver, for the CEL expressions of admission policies
// ("authorizer.group('apps').resource('deployments').check('create').allowed()").
func ForCEL(a Authorizer) authorizer.UnconditionalAuthorizer { return adapter{a} }

type adapter struct{ Authorizer }

// Authorize translates the attributes and the decision.
func (w adapter) Authorize(ctx context.Context, in authorizer.Attributes) (authorizer.Decision, string, error) {
	a := Attributes{
		User: in.GetUser(), Verb: in.GetVerb(), Namespace: in.GetNamespace(),
		Group: in.GetAPIGroup(), Version: in.GetAPIVersion(), Resource: in.GetResource(),
		Subresource: in.GetSubresource(), Name: in.GetName(), Path: in.GetPath(), IsResource: in.IsResourceRequest(),
	}
	a.FieldSelector, a.FieldSelectorError = in.GetFieldSelector()
	a.LabelSelector, a.LabelSelectorError = in.GetLabelSelector()
	decision, reason, err := w.Authorizer.Authorize(ctx, a)
	switch decision {
	case Allow:
		return authorizer.DecisionAllow, reason, err
	case Deny:
		return authorizer.DecisionDeny, reason, err
	default:
		return authorizer.DecisionNoOpinion, reason, err
	}
}
