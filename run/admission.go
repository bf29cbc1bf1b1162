package run

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/admissionplugins"
	"proa.dev/server/authz"
	"proa.dev/server/policyadmission"
	"proa.dev/server/policyexpressions"
	"proa.dev/server/state"
	"proa.dev/server/webhook"
)

// dynamicPlugins returns the admission plugins that objects of the cluster configure: policies and webhooks.
func (s *Server) dynamicPlugins(counts *policyadmission.Metrics) admissionplugins.Dynamic {
	mutating, validating := policyadmission.Plugins(policyadmission.Config{
		Validating: state.NewConfigView(s.state, gr.ValidatingAdmissionPolicies, policyadmission.ValidatingBindings()),
		Mutating:   state.NewConfigView(s.state, policyadmission.MutatingPolicies(), policyadmission.MutatingBindings()),
		Authorizer: authz.ForCEL(s.authorizers),
		Types:      func(k schema.GroupVersionKind) managedfields.TypeConverter { return s.pipeline.TypeConverter(k) }, Metrics: counts,
	})
	changing, refusing := s.webhookPlugins()
	return admissionplugins.Dynamic{Mutating: []kind.Plugin{mutating, changing}, Checking: []kind.Plugin{validating, refusing}}
}

// typeCheck returns warnings about the expressions of a policy, by the schemas that clients read.
func (s *Server) typeCheck(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy) ([]admissionv1.ExpressionWarning, error) {
	return policyexpressions.TypeCheck(ctx, p, policyexpressions.Published(s.state.Defs, s.api.Paths))
}

// webhookPlugins returns the admission plugins that call webhooks.
func (s *Server) webhookPlugins() (mutating, validating kind.Plugin) {
	return webhook.Plugins(webhook.Config{
		Mutating:   state.NewConfigView(s.state, webhook.MutatingConfigurations()),
		Validating: state.NewConfigView(s.state, webhook.ValidatingConfigurations()),
		Clients:    s.extensions, Authorizer: authz.ForCEL(s.authorizers), Metrics: s.webhooks, Log: s.log,
	})
}
