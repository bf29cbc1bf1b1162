package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"proa.dev/proatest"
)

// TestVersionsAreCheckedAfterAdmission checks that admission is heard before the versions of objects, as upstream has it:
// the version of a new object after hop 6, that of an update after hop 4.
func TestVersionsAreCheckedAfterAdmission(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	const maps = "/api/v1/namespaces/default/configmaps"
	matches := func(operation string) string {
		return `"matchConstraints":{"resourceRules":[{"operations":["` + operation + `"],"apiGroups":[""],"apiVersions":["*"],"resources":["configmaps"]}]}`
	}
	configMap := func(meta, data string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + meta + `},"data":{` + data + `}}`
	}
	w.must(201, "POST", maps, configMap(`"name":"here"`, ``))
	for _, body := range []string{
		`"kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{` + matches("CREATE") + `,"validations":[{"expression":"!has(object.data) || !('bad' in object.data)","message":"bad"}]}}`,
		`"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`,
		`"kind":"MutatingAdmissionPolicy","metadata":{"name":"p"},"spec":{"reinvocationPolicy":"Never",` + matches("UPDATE") +
			`,"matchConditions":[{"name":"bad","expression":"has(object.data) && 'bad' in object.data"}],"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'x': object.data.missing}}}"}}]}}`,
		`"kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"p"},"spec":{"policyName":"p"}}`,
	} {
		plural := strings.ToLower(strings.Split(body, `"`)[3]) + "s"
		w.must(201, "POST", registration+strings.Replace(plural, "policys", "policies", 1), `{"apiVersion":"admissionregistration.k8s.io/v1",`+body)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		create, _ := w.do("POST", maps+"?dryRun=All", configMap(`"name":"probe"`, `"bad":"x"`))
		update, _ := w.do("PUT", maps+"/here?dryRun=All", configMap(`"name":"here"`, `"bad":"x"`))
		if create >= 400 && update >= 400 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policies are not in effect: %d, %d", create, update)
		}
	}
	const set = "resourceVersion should not be set on objects to be created"
	for _, test := range []struct {
		what, method, path, meta, data string
		code                           int
		want                           string
	}{
		{"create, refused", "POST", "", `"name":"a","resourceVersion":"1"`, `"bad":"x"`, 422, "denied request: bad"},
		{"create", "POST", "", `"name":"a","resourceVersion":"1"`, ``, 500, set},
		{"create what exists", "POST", "", `"name":"here","resourceVersion":"1"`, ``, 500, set},
		{"create an invalid object", "POST", "", `"name":"A","resourceVersion":"1"`, ``, 422, "lowercase RFC 1123 subdomain"},
		{"create by a generated name", "POST", "", `"generateName":"a-","resourceVersion":"1"`, ``, 500, set},
		{"create, version 0", "POST", "", `"name":"zero","resourceVersion":"0"`, ``, 201, ""},
		{"create, no version", "POST", "", `"name":"none","resourceVersion":"abc"`, ``, 201, ""},
		{"dry run", "POST", "?dryRun=All", `"name":"a","resourceVersion":"1"`, ``, 201, ""},
		{"update, refused", "PUT", "/here", `"name":"here","resourceVersion":"1"`, `"bad":"x"`, 403, "no such key: missing"},
		{"update", "PUT", "/here", `"name":"here","resourceVersion":"1"`, ``, 409, "the object has been modified"},
		{"update of another object", "PUT", "/here", `"name":"here","uid":"7","resourceVersion":"1"`, `"bad":"x"`, 409, "Precondition failed: UID in precondition: 7"},
		{"update, no version", "PUT", "/here", `"name":"here","resourceVersion":"abc"`, ``, 500, "invalid syntax"},
	} {
		code, text := w.do(test.method, maps+test.path, configMap(test.meta, test.data))
		if code != test.code || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %.400s, want %d %s", test.what, code, text, test.code, test.want)
		}
	}
}
