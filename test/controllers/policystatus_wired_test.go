package controllers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/policystatus"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestPolicyStatusInCluster checks a policy in a whole cluster: with the controller's own service account, and the schemas that the
// server publishes.
func TestPolicyStatusInCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.Controllers = []string{"validatingadmissionpolicy-status-controller"}
		}).Client
		got := createPolicy(t, c, "object.spec.replicas > 1", "object.spec.replicas > '1'").Status
		if got.ObservedGeneration != 1 || got.TypeChecking == nil || len(got.TypeChecking.ExpressionWarnings) != 1 {
			t.Fatalf("the status is %+v", got)
		}
		const want = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n" +
			" | object.spec.replicas > '1'\n | .....................^\n"
		if w := got.TypeChecking.ExpressionWarnings[0]; w.FieldRef != "spec.validations[1].expression" || w.Warning != want {
			t.Errorf("got %q: %q", w.FieldRef, w.Warning)
		}
	})
}

// TestPolicyIsTypeCheckedOnce checks that a policy is type-checked once for each generation.
func TestPolicyIsTypeCheckedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var checked atomic.Int32
		ctl := policystatus.Controller(func(context.Context, *admissionv1.ValidatingAdmissionPolicy) ([]admissionv1.ExpressionWarning,
			error) {
			checked.Add(1)
			return nil, nil
		})
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir), func(c *run.Config) {
			c.FilterControllers = func([]control.Controller) []control.Controller { return []control.Controller{ctl} }
		}).Client
		p := createPolicy(t, c, "true").DeepCopy()
		p.Labels = map[string]string{"a": "b"}
		if _, err := c.Update(t.Context(), gr.ValidatingAdmissionPolicies, p, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := checked.Load(); n != 1 {
			t.Errorf("checked %d times", n)
		}
	})
}

// createPolicy creates a policy about Deployments and returns it as it is after a second.
func createPolicy(t *testing.T, c client.Client, expressions ...string) *admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	p.Spec.MatchConstraints = &admissionv1.MatchResources{
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{"CREATE"},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
		}}}}
	for _, e := range expressions {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: e})
	}
	if _, err := c.Create(t.Context(), gr.ValidatingAdmissionPolicies, p); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	o, err := c.Get(t.Context(), gr.ValidatingAdmissionPolicies, "", "mine", "")
	if err != nil {
		t.Fatal(err)
	}
	return o.(*admissionv1.ValidatingAdmissionPolicy)
}
