package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/proatest"
)

// TestCustomResources plays scripts of requests to a whole server. A script is a list of requests, each followed by the
// code of its answer and by what some fields of the answer hold:
//
//	POST /apis/example.com/v1/namespaces/default/things
//	(a body in YAML)
//	-> 201
//	metadata.generation = 1
//
// Headers may follow the path, as "Accept:application/yaml". A request that ends with "-> established" is sent again
// until the definition in its answer is established, and one with "-> until FIELD = VALUE" until the answer has that.
func TestCustomResources(t *testing.T) {
	files, err := filepath.Glob("testdata/custom/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	c := proatest.Start(t, proatest.Memory())
	w := newHTTPClient(t, c)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			(&customScript{w: &httpClient{t, w.Client, w.base}, file: file}).run(string(text))
		})
	}
}

type customScript struct {
	w    *httpClient
	file string
}

func (s *customScript) run(text string) {
	s.w.Helper()
	var head, body string
	var answer map[string]any
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", s.file, i+1)
		switch {
		case strings.HasPrefix(line, "# "):
		case isRequest(line):
			head, body, answer = line, "", nil
		case strings.HasPrefix(line, "-> "):
			answer = s.send(at, head, body, strings.TrimPrefix(line, "-> "))
		case answer == nil:
			body += line + "\n"
		case strings.TrimSpace(line) == "":
		default:
			path, want, _ := strings.Cut(line, " = ")
			if got := show(answer, path); got != want {
				s.w.Errorf("%s: %s is %s, want %s", at, path, got, want)
			}
		}
	}
}

func isRequest(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	switch method {
	case "GET", "POST", "PUT", "PATCH", "DELETE":
		return strings.HasPrefix(rest, "/")
	}
	return false
}

// send sends a request and checks the code of the response.
func (s *customScript) send(at, head, body, want string) map[string]any {
	s.w.Helper()
	words := strings.Fields(head)
	var headers []string
	for _, h := range words[2:] {
		headers = append(headers, strings.Replace(h, ":", ": ", 1))
	}
	if strings.TrimSpace(body) != "" {
		converted, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			s.w.Fatalf("%s: %v", at, err)
		}
		body = string(converted)
	} else {
		body = ""
	}
	condition, until := strings.CutPrefix(want, "until ")
	path, value, _ := strings.Cut(condition, " = ")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		code, text, h := s.w.doWithHeader(words[0], words[1], body, headers...)
		out := map[string]any{}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			out["text"], out["code"] = text, code
		}
		if warnings := h.Values("Warning"); len(warnings) > 0 {
			out["warnings"] = strings.Join(warnings, "|")
		}
		switch {
		case want == "established" && strings.Contains(text, `"type":"Established"`) && strings.Contains(text, "InitialNamesAccepted"):
			return out
		case until && show(out, path) == value:
			return out
		case (until || want == "established") && time.Now().Before(deadline):
			continue
		case want != strconv.Itoa(code):
			s.w.Fatalf("%s: %s: got %d, want %s: %.900s", at, head, code, want, text)
		}
		return out
	}
}

// show returns the value at a path of a document as JSON. A path has names of fields and numbers of items.
func show(doc any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[name]
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n >= len(d) {
				return "nothing"
			}
			doc = d[n]
		default:
			return "nothing"
		}
	}
	if doc == nil {
		return "nothing"
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text))
}

// newConverter starts a conversion webhook for things: v1 has spec.size, v2 has the same number as a text in spec.amount.
func newConverter(t *testing.T, unavailable *atomic.Bool) *httptest.Server {
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil || unavailable.Load() {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			spec, _ := u.Object["spec"].(map[string]any)
			if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v2") {
				u.Object["spec"] = map[string]any{"amount": fmt.Sprint(spec["size"])}
			} else {
				n, _ := strconv.ParseInt(fmt.Sprint(spec["amount"]), 10, 64)
				u.Object["spec"] = map[string]any{"size": n}
			}
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	return hook
}

const convertedThings = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.convert.example.com"},"spec":{
"group":"convert.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}},
{"name":"v2","served":true,"storage":false,"selectableFields":[{"jsonPath":".spec.amount"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"amount":{"type":"string"}}}}}}}]}}`

// TestConversionWebhook checks that objects are read and written in every version. While the webhook is away the stored version
// stays readable, lists of others fail as a whole, and all is well when it is back.
func TestConversionWebhook(t *testing.T) {
	var unavailable atomic.Bool
	hook := newConverter(t, &unavailable)
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "conversion"}
	body := fmt.Sprintf(convertedThings, hook.URL, caBundleOf(hook))
	s.send("", "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", body, "201")
	s.send("", "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.convert.example.com", "", "established")
	const v1, v2 = "/apis/convert.example.com/v1/namespaces/default/things", "/apis/convert.example.com/v2/namespaces/default/things"
	w.must(201, "POST", v1, `{"apiVersion":"convert.example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":3}}`)
	w.must(201, "POST", v2, `{"apiVersion":"convert.example.com/v2","kind":"Thing","metadata":{"name":"b"},"spec":{"amount":"5"}}`)
	if got := w.must(200, "GET", v2+"/a", ""); show(got, "spec.amount") != `"3"` || show(got, "apiVersion") != `"convert.example.com/v2"` {
		t.Errorf("a in v2 is %v", got)
	}
	if got := w.must(200, "GET", v1+"/b", ""); show(got, "spec.size") != "5" {
		t.Errorf("b in v1 is %v", got)
	}
	if got := w.must(200, "GET", v2+"?fieldSelector=spec.amount%3D5", ""); show(got, "items.0.metadata.name") != `"b"` ||
		show(got, "items.1") != "nothing" {
		t.Errorf("selected by a field of v2: %v", got)
	}
	w.must(200, "PATCH", v2+"/a", `{"spec":{"amount":"4"}}`, "Content-Type: application/merge-patch+json")
	if got := w.must(200, "GET", v1+"/a", ""); show(got, "spec.size") != "4" || show(got, "metadata.generation") != "2" {
		t.Errorf("a in v1 after a patch of v2 is %v", got)
	}

	unavailable.Store(true)
	w.must(201, "POST", v1, `{"apiVersion":"convert.example.com/v1","kind":"Thing","metadata":{"name":"c"},"spec":{"size":7}}`)
	if got := w.must(200, "GET", v1, ""); show(got, "items.2.spec.size") != "7" {
		t.Errorf("the stored version cannot be read: %v", got)
	}
	for _, path := range []string{v2 + "/c", v2} {
		if st := w.status(500, "GET", path, ""); !strings.Contains(st.Message,
			"conversion webhook for convert.example.com/v1, Kind=Thing failed") {
			t.Errorf("%s returns %s", path, st.Message)
		}
	}
	w.status(500, "POST", v2, `{"apiVersion":"convert.example.com/v2","kind":"Thing","metadata":{"name":"d"},"spec":{"amount":"1"}}`)

	unavailable.Store(false)
	if got := w.must(200, "GET", v2, ""); show(got, "items.2.spec.amount") != `"7"` {
		t.Errorf("v2 with the webhook back: %v", got)
	}
}

// caBundleOf returns the certificate of a server in the form of the field caBundle: base64 of PEM.
func caBundleOf(s *httptest.Server) string {
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return base64.StdEncoding.EncodeToString(block)
}
