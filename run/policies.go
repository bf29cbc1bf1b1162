package run

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/server"
	"proa.dev/server/authz"
	"proa.dev/server/policies"
	"proa.dev/server/policyadmission"
)

// dynamicPlugins makes the plugins that objects of the cluster configure.
func (s *Server) dynamicPlugins(counts *policyadmission.Metrics) dynamicPlugins {
	mutating, validating := policyadmission.Plugins(policyadmission.Config{
		Validating: server.NewConfigView(s.state, gr.ValidatingAdmissionPolicies, policyadmission.ValidatingBindings()),
		Mutating:   server.NewConfigView(s.state, policyadmission.MutatingPolicies(), policyadmission.MutatingBindings()),
		Authorizer: authz.ForCEL(s.deciders), Types: func(k schema.GroupVersionKind) managedfields.TypeConverter { return s.front.TypeConverter(k) }, Metrics: counts,
	})
	changing, refusing := s.webhookPlugins()
	return dynamicPlugins{mutating: []kind.Plugin{mutating, changing}, checking: []kind.Plugin{validating, refusing}}
}

// typeCheck finds what is wrong with the expressions of a policy, by the schemas that clients read.
func (s *Server) typeCheck(ctx context.Context, p *admissionv1.ValidatingAdmissionPolicy) ([]admissionv1.ExpressionWarning, error) {
	return policies.TypeCheck(ctx, p, policies.Published(s.state.Defs, s.front.Paths))
}
