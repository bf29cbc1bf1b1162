package run_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spanBuffer collects the spans that a server exports.
type spanBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// serve starts the receiver of the spans and returns its URL.
func (b *spanBuffer) serve(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.text.Write(text)
		_, _ = io.WriteString(w, "{}") // the server may have ended
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// has reports whether the spans contain a text.
func (b *spanBuffer) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), text)
}

// useSecrets makes the Secrets that kubectl apply makes, with the object in an annotation, those that other objects use, and has
// some refused by what comes after the schema.
func (s *secretsTest) useSecrets() {
	b64 := func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }
	applied := func(name, data string) string {
		o := `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{},"name":"` + name + `","namespace":"default"},` + data + "}"
		last, err := json.Marshal(o + "\n")
		if err != nil {
			s.T.Fatal(err)
		}
		return strings.Replace(o, `"annotations":{}`, `"annotations":{"kubectl.kubernetes.io/last-applied-configuration":`+string(last)+`}`, 1)
	}
	value := func(way string) string { return `"stringData":{"password":"` + s.newSecret(way) + `"}` }
	s.mustSucceed("POST", secretsPath+"?fieldManager=kubectl-client-side-apply", jsonType, applied("login", value("client side apply")))
	s.mustSucceed("PATCH", secretsPath+"/login?fieldManager=kubectl-client-side-apply", "application/strategic-merge-patch+json",
		applied("login", value("applied again")))
	s.mustSucceed("PATCH", secretsPath+"/login", "application/merge-patch+json",
		applied("login", `"data":{"other":"`+b64(s.newSecret("in data"))+`"}`))
	s.mustFail("POST", secretsPath, jsonType, applied("login", value("exists already")))
	s.mustFail("POST", secretsPath, jsonType, applied("Wrong_Name", value("invalid name applied")))
	s.mustFail("PATCH", secretsPath+"/login", "application/strategic-merge-patch+json",
		applied("login", `"type":"x",`+value("retyped by apply")))
	long := strings.Repeat(s.newSecret("long annotation"), 20_000)
	s.mustFail("POST", secretsPath, jsonType, applied("long", `"stringData":{"a":"`+long+`"}`))
	s.mustFail("POST", "/api/v1/namespaces/nosuch/secrets", jsonType,
		strings.Replace(applied("login", value("nosuch namespace")), `"default"`, `"nosuch"`, 1))
	for _, wrong := range []string{"configmaps", "pods", "serviceaccounts", "nosuch"} { // what is sent to the path of another kind
		for _, validation := range []string{"Strict", "Warn"} {
			s.mustFail("POST", "/api/v1/namespaces/default/"+wrong+"?fieldValidation="+validation, jsonType,
				applied("login", value("sent to "+wrong)))
		}
	}
	s.send("POST", secretsPath+"?fieldValidation=Warn", jsonType,
		applied("typo", `"stringdata":{"password":"`+s.newSecret("unknown field")+`"}`))
	// Policies of administrators are about the values of Secrets too, and what is wrong with an expression may quote them.
	const registrations = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
	s.mustSucceed("POST", registrations+"ies", jsonType, `{"metadata":{"name":"numbers"},"spec":{"failurePolicy":"Fail",
  "matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"],"operations":["CREATE"],"resourceNames":["policed"]}]},
  "validations":[{"expression":"int(string(object.data.number)) > 0"}]}}`)
	s.mustSucceed("POST", registrations+"ybindings", jsonType, `{"metadata":{"name":"numbers"},"spec":{"policyName":"numbers","validationActions":["Deny"]}}`)
	s.eventually("the policy refuses nothing", func() bool {
		code, _ := s.send("POST", secretsPath+"?dryRun=All", jsonType,
			applied("policed", `"stringData":{"number":"`+s.newSecret("policed")+`"}`))
		return code >= http.StatusBadRequest
	})
	s.mustFail("POST", secretsPath, jsonType,
		applied("policed", `"stringData":{"number":"`+s.newSecret("refused by policy")+`"}`))

	s.mustSucceed("POST", secretsPath, jsonType,
		applied("basic", `"type":"kubernetes.io/basic-auth","stringData":{"username":"u","password":"`+s.newSecret("basic auth")+`"}`))
	s.mustSucceed("POST", secretsPath, jsonType, applied("site", `"type":"kubernetes.io/tls","stringData":{"tls.crt":"`+
		s.newSecret("tls certificate")+`","tls.key":"`+s.newSecret("tls key")+`"}`))
	s.mustSucceed("POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", jsonType,
		`{"metadata":{"name":"site"},"spec":{"tls":[{"hosts":["site.test"],"secretName":"site"}],"defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`)
	s.mustSucceed("POST", "/apis/apps/v1/namespaces/default/deployments", jsonType, `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},
  "template":{"metadata":{"labels":{"app":"web"}},"spec":{"imagePullSecrets":[{"name":"pull"}],"containers":[{"name":"c","image":"i",
    "env":[{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"login","key":"password"}}},{"name":"URL","value":"http://u:$(PASSWORD)@db"}],
    "envFrom":[{"secretRef":{"name":"basic"}}],"command":["run","$(PASSWORD)"],"volumeMounts":[{"name":"v","mountPath":"/v"},{"name":"all","mountPath":"/all"}]}],
    "volumes":[{"name":"v","secret":{"secretName":"login"}},{"name":"all","projected":{"sources":[{"secret":{"name":"basic"}},{"secret":{"name":"nosuch"}}]}}]}}}}`)
	s.mustSucceed("DELETE", secretsPath+"/site", "", "")
}

// eventually waits until something is so.
func (s *secretsTest) eventually(what string, is func() bool) {
	s.T.Helper()
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.T.Fatal(what)
}

// addShownOutputs adds what the server shows of its objects and of what happened, and what it keeps.
func (s *secretsTest) addShownOutputs(out map[string]string) {
	out["errors and warnings"] = s.refusals.String()
	for _, path := range []string{"/readyz?verbose", "/proa/failing", "/metrics/slis"} {
		out["health"] += s.mustSucceed("GET", path, "", "")
	}
	const traces = "/apis/trace.proa.dev/v1/"
	list := s.mustSucceed("GET", traces+"traces", "", "")
	var of struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	if err := json.Unmarshal([]byte(list), &of); err != nil ||
		!strings.Contains(list, "secrets:login") || !strings.Contains(list, "configmaps:login") {
		s.T.Errorf("the traces of written and refused Secrets are missing among %d: %v", len(of.Items), err)
	}
	out["traces"] = list
	for _, item := range of.Items {
		m := &item.Metadata
		for _, kind := range []string{"traces", "wiretraces"} {
			out[kind] += s.mustSucceed("GET", traces+"namespaces/"+m.Namespace+"/"+kind+"/"+m.Name, "", "")
		}
	}
	out["explanations"] = s.mustSucceed("GET", traces+"explanations", "", "") + s.mustSucceed("GET", traces+"schedulingattempts", "", "")
	for _, name := range []string{"secrets:login", "secrets:site", "pods:p", "deployments.apps:web", "ingresses.networking.k8s.io:site"} {
		_, text := s.send("GET", traces+"namespaces/default/explanations/"+name, "", "")
		out["explanations"] += text
	}
	out["tables"] = s.mustSucceed("GET", secretsPath+"?includeObject=None", "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	out["other objects"] = s.readAllObjects()
	s.eventually("no spans are exported", func() bool { return s.spans.has("secrets") })
	out["spans"] = s.spans.text.String()
	if err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "pki":
			return fs.SkipDir // the cluster's keys and the kubeconfigs of its users
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if !bytes.Contains(text, []byte("client-key-data: ")) { // else a kubeconfig
			// The file of the store is mostly empty.
			out["data folder"] += path + "\n" + strings.ReplaceAll(string(text), strings.Repeat("\x00", 512), "")
		}
		return err
	}); err != nil {
		s.T.Error(err)
	}
}

// readAllObjects lists the objects of all built-in resources but Secrets.
func (s *secretsTest) readAllObjects() (all string) {
	for _, prefix := range []string{"/api/v1", "/apis/apps/v1", "/apis/networking.k8s.io/v1", "/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1",
		"/apis/admissionregistration.k8s.io/v1", "/apis/discovery.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"} {
		var resources metav1.APIResourceList
		if err := json.Unmarshal([]byte(s.mustSucceed("GET", prefix, "", "")), &resources); err != nil {
			s.T.Fatal(err)
		}
		for _, r := range resources.APIResources {
			if r.Name != "secrets" && strings.Contains(fmt.Sprint(r.Verbs), "list") {
				all += s.mustSucceed("GET", prefix+"/"+r.Name, "", "") +
					s.mustSucceed("GET", prefix+"/"+r.Name, "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
			}
		}
	}
	return all
}
