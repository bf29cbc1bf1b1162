package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"proa.dev/control/controltest"
	"proa.dev/control/policystatus"
)

func TestPolicyStatus(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/policystatus/testdata/*.txt", policystatus.Controller(policystatusCheck))
}

// policystatusCheck replaces the type checker: it warns about one word, and fails at another.
func policystatusCheck(_ context.Context, p *admissionv1.ValidatingAdmissionPolicy) (out []admissionv1.ExpressionWarning, _ error) {
	for _, v := range p.Spec.Validations {
		if strings.Contains(v.Expression, "unreadable") {
			return nil, errors.New("no schemas")
		}
		if strings.Contains(v.Expression, "wrong") {
			out = append(out, admissionv1.ExpressionWarning{FieldRef: "spec.validations[0].expression", Warning: "undefined field 'wrong'"})
		}
	}
	return out, nil
}
