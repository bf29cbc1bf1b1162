package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/proatest"
)

// excessiveQuantity has an exponent that is one digit too long. It can still be parsed quickly; with some more digits that
// would take minutes.
const excessiveQuantity = "1e-1000"

const excessiveQuantityError = "the exponent of a quantity has at most 3 digits"

func podWith(name, cpu string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":` + cpu + `}}}]}}`
}

// TestQuantitiesAreBounded checks that quantities that would take minutes to compute with are refused in every format and by
// every verb, and that texts that only look like one are not.
func TestQuantitiesAreBounded(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	const pods = "/api/v1/namespaces/default/pods"
	const maps = "/api/v1/namespaces/default/configmaps"
	yaml := "Content-Type: application/yaml"
	inYAML := func(cpu string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - {name: c, image: i, resources: {limits: {cpu: " + cpu + "}}}\n"
	}
	w.must(201, "POST", pods, podWith("stored", `"1"`))
	for _, test := range []struct{ what, method, path, body, media string }{
		{"JSON", "POST", pods, podWith("x", `"`+excessiveQuantity+`"`), ""},
		{"a number", "POST", pods, podWith("x", excessiveQuantity), ""},
		{"many digits", "POST", pods, podWith("x", `"`+strings.Repeat("7", 300)+`"`), ""},
		{"an update", "PUT", pods + "/stored", podWith("stored", `"`+excessiveQuantity+`"`), ""},
		{"another kind than the path's", "POST", maps, podWith("x", `"`+excessiveQuantity+`"`), ""},
		{"YAML", "POST", pods, inYAML(`"` + excessiveQuantity + `"`), yaml},
		{"YAML with escapes", "POST", pods, inYAML(`"\x31e-1000"`), yaml},
		{"YAML with base64", "POST", pods, inYAML(`!!binary MWUtMTAwMA==`), yaml},
		{"a merge patch", "PATCH", pods + "/stored",
			`{"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"` + excessiveQuantity + `"}}}]}}`,
			"Content-Type: application/merge-patch+json"},
		{"a strategic merge patch", "PATCH", pods + "/stored",
			`{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"` + excessiveQuantity + `"}}}]}}`,
			"Content-Type: application/strategic-merge-patch+json"},
		{"with an escape", "PATCH", pods + "/stored", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"\u0031e-1000"}}}]}}`, "Content-Type: application/strategic-merge-patch+json"},
		{"a JSON patch", "PATCH", pods + "/stored",
			`[{"op":"replace","path":"/spec/containers/0/resources/limits/cpu","value":"` + excessiveQuantity + `"}]`,
			"Content-Type: application/json-patch+json"},
		{"an apply", "PATCH", pods + "/applied?fieldManager=me", podWith("applied", `"`+excessiveQuantity+`"`),
			"Content-Type: application/apply-patch+yaml"},
	} {
		code, text := w.do(test.method, test.path, test.body, mediaHeaders(test.media)...)
		if code != 400 && code != 422 || !strings.Contains(text, excessiveQuantityError) &&
			!strings.Contains(text, "a quantity has at most 256 characters") {
			t.Errorf("%s: %d %.300s", test.what, code, text)
		}
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("7777777")}}}}},
	}
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw = []byte(strings.Replace(string(raw), "7777777", excessiveQuantity, 1)) // both have the same length, so the encoding stays valid
	sealed, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for what, body := range map[string]string{"protobuf": string(sealed), "protobuf with another field": string(sealed) + "\xf8\x07\x01"} {
		if code, text := w.do("POST", pods, "k8s\x00"+body, "Content-Type: application/vnd.kubernetes.protobuf",
			"Accept: application/json"); code != 400 || !strings.Contains(text, excessiveQuantityError) {
			t.Errorf("%s: %d %.300s", what, code, text)
		}
	}
	w.must(201, "POST", maps,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"4e123456","labels":{"commit":"4e123456"}},"data":{"`+excessiveQuantity+`":"`+excessiveQuantity+`"}}`)
	w.must(200, "PATCH", maps+"/4e123456", `{"data":{"more":"`+excessiveQuantity+`"}}`,
		"Content-Type: application/strategic-merge-patch+json")
	w.must(200, "PATCH", maps+"/4e123456?fieldManager=me&force=true",
		`{"apiVersion":"v1","kind":"ConfigMap","data":{"most":"`+excessiveQuantity+`"}}`,
		"Content-Type: application/apply-patch+yaml")
}

func mediaHeaders(media string) []string {
	if media == "" {
		return nil
	}
	return []string{media}
}

// TestExtensionsBoundQuantities checks that what webhooks, policies and rules make of a text or read in it is bounded as well.
func TestExtensionsBoundQuantities(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	const pods = "/api/v1/namespaces/default/pods"
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	until := func(what, path, body, want string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			code, text := w.do("POST", path+"?dryRun=All", body)
			if code >= 400 && strings.Contains(text, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d %.300s, want %s", what, code, text, want)
			}
		}
	}

	s := &customScript{w: w, file: "quantities"}
	s.define("sizes", "Size", "Namespaced", `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"string","maxLength":300}},
"x-kubernetes-validations":[{"rule":"!has(self.size) || isQuantity(self.size)"}]}}}`)
	size := func(text string) string {
		return `{"apiVersion":"attack.example.com/v1","kind":"Size","metadata":{"name":"x"},"spec":{"size":"` + text + `"}}`
	}
	until("a rule", "/apis/attack.example.com/v1/namespaces/default/sizes", size(excessiveQuantity),
		"rules of this kind read quantities: "+excessiveQuantityError)
	w.must(201, "POST", "/apis/attack.example.com/v1/namespaces/default/sizes", size("10Gi"))

	policy := func(kind, name, spec string) {
		for suffix, spec := range map[string]string{"": `"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods"]}]},` + spec,
			"Binding": `"policyName":"` + name + `"` + map[string]string{"Validating": `,"validationActions":["Deny"]`}[kind]} {
			plural := strings.ToLower(kind) + "admissionpolic" + map[string]string{"": "ies", "Binding": "ybindings"}[suffix]
			w.must(201, "POST", registration+plural, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sAdmissionPolicy%s","metadata":{"name":"%s"},"spec":{%s}}`, kind, suffix, name, spec))
		}
	}
	waitDeleted := func(kind, name string) {
		w.must(200, "DELETE", registration+strings.ToLower(kind)+"admissionpolicies/"+name, "")
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if code, _ := w.do("POST", pods+"?dryRun=All", podWith("probe", `"1"`)); code == 201 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the policy %s is still there", name)
			}
		}
	}
	policy("Validating", "reads", `"validations":[{"expression":"quantity(\"1e-\" + \"1000\").isInteger()"}]`)
	until("a policy that reads", pods, podWith("x", `"1"`), excessiveQuantityError)
	waitDeleted("Validating", "reads")

	policy("Mutating", "patches",
		`"failurePolicy":"Fail","reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"replace\", path: \"/spec/containers/0/resources/limits/cpu\", value: \"`+excessiveQuantity+`\"}]"}}]`)
	until("a policy that patches", pods, podWith("x", `"1"`), excessiveQuantityError)
	waitDeleted("Mutating", "patches")

	policy("Mutating", "applies",
		`"failurePolicy":"Fail","reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{overhead: {\"cpu\": \"`+excessiveQuantity+`\"}}}"}}]`)
	until("a policy that applies", pods, podWith("x", `"1"`), excessiveQuantityError)
	waitDeleted("Mutating", "applies")

	d := newTestWebhook(t)
	d.respondWithPatch(`[{"op":"replace","path":"/spec/containers/0/resources/limits/cpu","value":"` + excessiveQuantity + `"}]`)
	w.must(201, "POST", registration+"mutatingwebhookconfigurations", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"decider"},
"webhooks":[{"name":"decider.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q},
"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods"]}]}]}`, d.URL, caBundleOf(d.Server)))
	until("a webhook", pods, podWith("x", `"1"`), excessiveQuantityError)
}
