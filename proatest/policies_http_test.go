package proatest_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestPoliciesOverHTTP checks what a client, the audit log and the metrics show of a policy that warns, and of one that rejects.
func TestPoliciesOverHTTP(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) { c.Audit = log })
	policy := func(name, actions, spec string) {
		t.Helper()
		for _, err := range []error{
			create(t, c, gr.ValidatingAdmissionPolicies, &admissionv1.ValidatingAdmissionPolicy{}, "metadata: {name: "+name+"}\nspec:\n"+
				"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n"+spec),
			create(t, c, registration("validatingadmissionpolicybindings"), &admissionv1.ValidatingAdmissionPolicyBinding{},
				"metadata: {name: "+name+"}\nspec: {policyName: "+name+", validationActions: ["+actions+"]}"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	policy("warns", "Warn, Audit", "  validations: [{expression: size(object.data) <= 1, message: too many keys}]\n"+
		"  auditAnnotations: [{key: keys, valueExpression: string(size(object.data))}]\n")
	policy("refuses", "Deny", "  validations: [{expression: size(object.data) <= 2, message: far too many, reason: RequestEntityTooLarge}]\n")
	const maps = "/api/v1/namespaces/default/configmaps"
	refused := func() (status metav1.Status, code int) {
		code, text, _ := send(t, c.Config, http.MethodPost, maps+"?dryRun=All",
			`{"metadata": {"name": "b"}, "data": {"a": "1", "b": "2", "c": "3"}}`)
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return status, code
	}
	status, code := refused()
	for code == http.StatusCreated { // until the cache has the binding
		status, code = refused()
	}
	want := `configmaps "b" is forbidden: ValidatingAdmissionPolicy 'refuses' with binding 'refuses' denied request: far too many`
	if code != http.StatusRequestEntityTooLarge || status.Reason != metav1.StatusReasonRequestEntityTooLarge || status.Message != want ||
		len(status.Details.Causes) != 1 || !strings.HasSuffix(want, status.Details.Causes[0].Message) {
		t.Errorf("got %d %+v, want %s", code, status, want)
	}
	code, text, got := send(t, c.Config, http.MethodPost, maps, `{"metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}}`)
	warning := `299 - "Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns': too many keys"`
	if code != http.StatusCreated || got != warning {
		t.Errorf("got %d, warning %q, want %q\n%s", code, got, warning, text)
	}
	_, metrics, _ := send(t, c.Config, http.MethodGet, "/metrics", "")
	for _, line := range []string{
		`apiserver_validating_admission_policy_check_total{enforcement_action="deny",error_type="invalid_error",policy="refuses",policy_binding="refuses"} `,
		`apiserver_validating_admission_policy_check_total{enforcement_action="warn",error_type="invalid_error",policy="warns",policy_binding="warns"} `,
		`apiserver_validating_admission_policy_check_duration_seconds_count{`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics do not have %s", line)
		}
	}
	c.Stop() // which ends the log
	events, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{`"warns/keys":"2"`, `"validation.policy.admission.k8s.io/validation_failure":"[{\"message\":\"too many keys\",\"policy\":\"warns\",`} {
		if !strings.Contains(string(events), note) {
			t.Errorf("the audit log does not have %s", note)
		}
	}
}
