package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/proatest"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// define creates a definition of one version and waits until it is established.
func (s *customScript) define(plural, kind, scope, schema string) {
	s.w.Helper()
	s.send("", "POST "+definitionsPath,
		fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.attack.example.com"},"spec":{
"group":"attack.example.com","scope":%[3]q,"names":{"plural":%[1]q,"kind":%[2]q},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%[4]s}}]}}`,
			plural, kind, scope, schema), "201")
	s.send("", "GET "+definitionsPath+"/"+plural+".attack.example.com", "", "established")
}

const looseSchema = `{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`

// TestCustomPathsStayInTheirResource checks that a user who may read one custom resource in one namespace can read no other one,
// however the path is written, and no name leads to another place in the store.
func TestCustomPathsStayInTheirResource(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	w := newHTTPClient(t, c)
	s := &customScript{w: w, file: "paths"}
	s.define("secrets", "Hidden", "Cluster", looseSchema)
	s.define("sec", "Sec", "Namespaced", looseSchema)
	s.define("secretss", "Other", "Namespaced", looseSchema)
	const base = "/apis/attack.example.com/v1/"
	w.must(201, "POST", base+"secrets", `{"apiVersion":"attack.example.com/v1","kind":"Hidden","metadata":{"name":"top"},"spec":{"key":"hidden"}}`)
	w.must(201, "POST", base+"namespaces/kube-system/secretss", `{"apiVersion":"attack.example.com/v1","kind":"Other","metadata":{"name":"far"},"spec":{"key":"hidden"}}`)
	w.must(201, "POST", base+"namespaces/default/sec", `{"apiVersion":"attack.example.com/v1","kind":"Sec","metadata":{"name":"mine"}}`)
	w.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `{"metadata":{"name":"sec"},"rules":[{"apiGroups":["attack.example.com"],"resources":["sec"],"verbs":["*"]}]}`)
	w.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"metadata":{"name":"sec"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"sec"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
	eve := newHTTPClient(t, c, impersonate("eve"))
	eve.must(200, "GET", base+"namespaces/default/sec", "")
	for _, path := range []string{
		"secrets", "secrets/top", "namespaces/default/secrets", "namespaces/default/secrets/top",
		"namespaces/default/sec/..%2f..%2f..%2fsecrets%2ftop", "namespaces/default/sec/%2e%2e%2f%2e%2e%2fsecretss%2fkube-system%2ffar",
		"namespaces/default/sec/..", "namespaces/default/sec/%2e%2e", "namespaces/default%2f..%2fkube-system/secretss/far",
		"namespaces/..%2fkube-system/sec", "namespaces/default/sec%2f..%2fsecretss", "namespaces/default/sec/mine%00", "sec?watch=1",
		"namespaces/kube-system/secretss",
	} {
		code, text := eve.do("GET", base+path, "")
		if code < 400 || strings.Contains(text, "hidden") {
			t.Errorf("GET %s: %d %.200s", path, code, text)
		}
	}
	// Even an administrator does not find a cluster-scoped resource below a namespace, nor a namespaced object without
	// its namespace.
	w.status(404, "GET", base+"namespaces/default/secrets/top", "")
	w.status(404, "GET", base+"sec/mine", "")
	for _, name := range []string{"../secretss/kube-system/far", "a/b", "..", "a%2fb", "a\\u0000b", "A"} {
		w.status(422, "POST", base+"namespaces/default/sec", `{"apiVersion":"attack.example.com/v1","kind":"Sec","metadata":{"name":"`+name+`"}}`)
	}
	w.status(400, "POST", base+"namespaces/default/sec", `{"apiVersion":"attack.example.com/v1","kind":"Sec","metadata":{"name":"x","namespace":"kube-system"}}`)
}

// TestInvalidCustomObjects checks that errors about invalid custom objects have the texts of upstream.
func TestInvalidCustomObjects(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "wrong"}
	s.define("things", "Thing", "Namespaced", `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"},"more":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}`)
	const things = "/apis/attack.example.com/v1/namespaces/default/things"
	body := func(rest string) string {
		return `{"apiVersion":"attack.example.com/v1","kind":"Thing","metadata":{"name":"x"}` + rest + `}`
	}
	strict := "?fieldValidation=Strict"
	deep := strings.Repeat(`{"a":`, 11000) + "1" + strings.Repeat("}", 11000)
	for _, test := range []struct {
		what, query, body string
		code              int
		want              string
	}{
		{"oversized", "", body(`,"spec":{"more":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`), 413,
			"Request entity too large: limit is 3145728"},
		{"too large for the store", "", body(`,"spec":{"more":{"a":"` + strings.Repeat("x", 2<<20) + `"}}`), 413,
			"Request entity too large"},
		{"deeply nested", "", body(`,"spec":{"more":` + deep + `}`), 400, "exceeded max depth"},
		{"mistyped", "", body(`,"spec":{"size":"big"}`), 422, `Thing.attack.example.com "x" is invalid: spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`},
		{"mistyped metadata", "", `{"apiVersion":"attack.example.com/v1","kind":"Thing","metadata":{"name":"x","labels":{"a":1}}}`, 400, "cannot unmarshal number into Go struct field"},
		{"another kind", "", `{"apiVersion":"attack.example.com/v1","kind":"Other","metadata":{"name":"x"}}`, 400, "Other"},
		{"another version", "", `{"apiVersion":"attack.example.com/v9","kind":"Thing","metadata":{"name":"x"}}`, 400, "attack.example.com/v9"},
		{"unknown", strict, body(`,"spec":{"colour":"red"}`), 400, `strict decoding error: unknown field "spec.colour"`},
		{"unknown in the metadata", strict, `{"apiVersion":"attack.example.com/v1","kind":"Thing","metadata":{"name":"x","colour":1}}`, 400, `strict decoding error: unknown field "metadata.colour"`},
		{"duplicate", strict, body(`,"spec":{"size":1,"size":2}`), 400, `strict decoding error: duplicate field "spec.size"`},
	} {
		code, text := w.do("POST", things+test.query, test.body)
		var st metav1.Status
		if err := json.Unmarshal([]byte(text), &st); err != nil || code != test.code || int(st.Code) != code ||
			!strings.Contains(st.Message, test.want) {
			t.Errorf("%s: got %d %.400s, want %d %s", test.what, code, text, test.code, test.want)
		}
	}
	if code, text := w.do("GET", things, ""); code != 200 || strings.Contains(text, `"name":"x"`) {
		t.Errorf("something was stored: %d %.300s", code, text)
	}
}

// faultyConverter is a conversion webhook whose responses can be replaced by respond.
type faultyConverter struct {
	*httptest.Server
	respond atomic.Pointer[func(w http.ResponseWriter, u *unstructured.Unstructured, review *apiextensionsv1.ConversionReview) (done bool)]
}

func newFaultyConverter(t *testing.T) *faultyConverter {
	l := &faultyConverter{}
	l.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		u := &unstructured.Unstructured{} // the last one
		for _, raw := range review.Request.Objects {
			u = &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		if respond := l.respond.Load(); respond != nil && (*respond)(w, u, &review) {
			return
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(l.Close)
	return l
}

// TestFaultyConversionWebhooks checks that a conversion webhook cannot change the identity of an object or redirect the server,
// and its answers are bounded. A wrong answer is an error for clients of the other version only.
func TestFaultyConversionWebhooks(t *testing.T) {
	hook := newFaultyConverter(t)
	var followed atomic.Int32
	victim := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		followed.Add(1)
		_,
			_ = io.WriteString(w, "inside")
	}))
	t.Cleanup(victim.Close)
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "lies"}
	s.send("", "POST "+definitionsPath, fmt.Sprintf(convertedThings, hook.URL, caBundleOf(hook.Server)), "201")
	s.send("", "GET "+definitionsPath+"/things.convert.example.com", "", "established")
	const v1, v2 = "/apis/convert.example.com/v1/namespaces/default/things", "/apis/convert.example.com/v2/namespaces/default/things"
	w.must(201, "POST", v1, `{"apiVersion":"convert.example.com/v1","kind":"Thing","metadata":{"name":"a","labels":{"x":"y"},"finalizers":["example.com/kept"]},"spec":{"size":3}}`)
	type respond = func(w http.ResponseWriter, u *unstructured.Unstructured, review *apiextensionsv1.ConversionReview) bool
	edit := func(f func(u *unstructured.Unstructured, r *apiextensionsv1.ConversionResponse)) respond {
		return func(_ http.ResponseWriter, u *unstructured.Unstructured, review *apiextensionsv1.ConversionReview) bool {
			f(u, review.Response)
			return false
		}
	}
	const failed = "conversion webhook for convert.example.com/v1, Kind=Thing "
	for _, test := range []struct {
		what    string
		respond respond
		want    string
	}{
		{"the UID of another request",
			edit(func(_ *unstructured.Unstructured, r *apiextensionsv1.ConversionResponse) { r.UID = "other" }),
			failed + "failed: expected response.uid="},
		{"another name", edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) { u.SetName("admin") }),
			failed + "returned invalid object: must have the same name: a != admin"},
		{"another namespace", edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) {
			u.SetNamespace("kube-system")
		}), failed + "returned invalid object: must have the same namespace: default != kube-system"},
		{"another UID", edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) { u.SetUID("mine") }),
			failed + "returned invalid object: must have the same UID"},
		{"another kind", edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) { u.SetKind("Secret") }), failed + "returned invalid object at index 0: invalid kind (expected Thing, received Secret)"},
		{"another version", edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) { u.SetAPIVersion("v1") }), failed + "returned invalid object at index 0: invalid groupVersion (expected convert.example.com/v2, received v1)"},
		{"invalid labels", edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) {
			_ = unstructured.SetNestedField(u.Object, int64(1), "metadata", "labels", "x")
		}), failed + "returned invalid metadata"},
		{"two objects", edit(func(u *unstructured.Unstructured, r *apiextensionsv1.ConversionResponse) {
			r.ConvertedObjects = append(r.ConvertedObjects, runtime.RawExtension{Object: u})
		}), failed + "returned 2 objects, expected 1"},
		{"no object", edit(func(_ *unstructured.Unstructured, r *apiextensionsv1.ConversionResponse) { r.ConvertedObjects = nil }),
			failed + "returned 0 objects, expected 1"},
		{"a redirect", func(w http.ResponseWriter, _ *unstructured.Unstructured, _ *apiextensionsv1.ConversionReview) bool {
			w.Header().Set("Location", victim.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, failed + "failed: "},
		{"gigabytes", func(w http.ResponseWriter, _ *unstructured.Unstructured, _ *apiextensionsv1.ConversionReview) bool {
			for range 1 << 14 {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					break
				}
			}
			return true
		}, failed + "failed: the answer has more than 16777216 bytes"},
		{"many informational responses", func(w http.ResponseWriter, _ *unstructured.Unstructured,
			_ *apiextensionsv1.ConversionReview) bool {
			for range 1000 {
				w.Header().Set("Link", strings.Repeat("x", 2000))
				w.WriteHeader(http.StatusEarlyHints)
			}
			return false
		}, failed + "failed: "},
		{"a gzip body that was not requested", func(w http.ResponseWriter, _ *unstructured.Unstructured,
			_ *apiextensionsv1.ConversionReview) bool {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
			return true
		}, failed + "failed: "},
		{"a deeply nested response", func(w http.ResponseWriter, _ *unstructured.Unstructured, _ *apiextensionsv1.ConversionReview) bool {
			_, _ = io.WriteString(w, `{"response":`+strings.Repeat(`{"a":`, 1<<20))
			return true
		}, failed + "failed: "},
	} {
		hook.respond.Store(&test.respond)
		st := w.status(500, "GET", v2+"/a", "")
		if !strings.Contains(st.Message, test.want) || len(st.Message) > 8<<10 || strings.Contains(st.Message, "inside") {
			t.Errorf("%s: %.600s, want %s", test.what, st.Message, test.want)
		}
		if got := w.must(200, "GET", v1+"/a", ""); show(got, "spec.size") != "3" {
			t.Errorf("%s: the stored version is %v", test.what, got)
		}
	}
	if followed.Load() > 0 {
		t.Error("a redirect was followed")
	}
	redirect := edit(func(u *unstructured.Unstructured, _ *apiextensionsv1.ConversionResponse) {
		u.SetFinalizers(nil)
		u.SetResourceVersion("1")
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}})
		u.SetDeletionTimestamp(&metav1.Time{})
		u.SetLabels(map[string]string{"new": "label"})
	})
	hook.respond.Store(&redirect)
	got := w.must(200, "GET", v2+"/a", "")
	if show(got, "metadata.finalizers") != `["example.com/kept"]` || show(got, "metadata.ownerReferences") != "nothing" ||
		show(got, "metadata.deletionTimestamp") != "nothing" ||
		show(got, "metadata.labels") != `{"new":"label"}` {
		t.Errorf("the metadata is %s", show(got, "metadata"))
	}
}

// TestSchemaReferencesAreNotFetched checks that the server does not fetch remote references in the schema of a definition.
func TestSchemaReferencesAreNotFetched(t *testing.T) {
	var fetched atomic.Int32
	remote := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched.Add(1) }))
	t.Cleanup(remote.Close)
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	st := w.status(422, "POST", definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"refs.attack.example.com"},"spec":{
"group":"attack.example.com","scope":"Namespaced","names":{"plural":"refs","kind":"Ref"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"$ref":"`+remote.URL+`/schema"}}}}}]}}`)
	if !strings.Contains(st.Message, "$ref is not supported") {
		t.Error(st.Message)
	}
	if fetched.Load() > 0 {
		t.Error("the server has fetched the schema")
	}
}
