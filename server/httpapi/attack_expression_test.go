package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"proa.dev/proatest"
)

// TestExpressionsOfUsersAreBounded evaluates and stores expressions that would take gigabytes or hours, wherever users may
// give expressions.
func TestExpressionsOfUsersAreBounded(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	const configMaps = "/api/v1/namespaces/default/configmaps"
	text := strings.Repeat("a", 12_000)
	until := func(what, path, body, want string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			code, answer := w.do("POST", path+"?dryRun=All", body)
			if code == 422 && strings.Contains(answer, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d %.300s, want %s", what, code, answer, want)
			}
		}
	}

	s := &customScript{w: w, file: "expressions"}
	s.define("texts", "Text", "Namespaced", `{"type":"object","properties":{"spec":{"type":"object","properties":{"text":{"type":"string","maxLength":20000}},
"x-kubernetes-validations":[{"rule":"!has(self.text) || self.text.replace('', self.text) != ''"}]}}}`)
	until("a rule", "/apis/attack.example.com/v1/namespaces/default/texts",
		`{"apiVersion":"attack.example.com/v1","kind":"Text","metadata":{"name":"x"},"spec":{"text":"`+text+`"}}`,
		"no further validation rules will be run due to call cost exceeds limit for rule")

	w.must(201, "POST", registration+"validatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"texts"},"spec":{
"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["configmaps"]}]},
"validations":[{"expression":"object.data.text.replace('', object.data.text) != ''"}]}}`)
	w.must(201, "POST", registration+"validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"texts"},"spec":{"policyName":"texts","validationActions":["Deny"]}}`)
	until("a policy", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"text":"`+text+`"}}`,
		"operation cancelled: actual cost limit exceeded")

	// What takes too long to compile is not stored.
	for _, bomb := range []struct{ expression, want string }{
		{`[1]` + strings.Repeat(`.map(x, {x: x})`, 14) + `.size() > 0`, "nests too many lists, maps or objects"},
		{`optional.of(1)` + strings.Repeat(`.optMap(x, x)`, 18) + `.hasValue()`, "macros copy it too often"},
		{strings.Repeat(`'a'.matches('`+strings.Repeat(`(a{1,1000})`, 5)+`') && `, 10) + `true`, "regular expressions of the expression are too large"},
	} {
		for path, body := range map[string]string{
			"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"x"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","selectors":[{"cel":{"expression":%q}}]}}]}}}`,
			registration + "validatingadmissionpolicies":                 `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"x"},"spec":{"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods"]}]},"validations":[{"expression":%q}]}}`,
			registration + "validatingwebhookconfigurations":             `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"x"},"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],"matchConditions":[{"name":"c","expression":%q}]}]}`,
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions":    `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"xs.attack.example.com"},"spec":{"group":"attack.example.com","scope":"Namespaced","names":{"plural":"xs","kind":"X"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-validations":[{"rule":%q}]}}}]}}`,
		} {
			if code, answer := w.do("POST", path, fmt.Sprintf(body, bomb.expression)); code != 422 || !strings.Contains(answer, bomb.want) {
				t.Errorf("%s: %.60s: %d %.300s", path, bomb.expression, code, answer)
			}
		}
	}
}
