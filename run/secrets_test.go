package run_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"proa.dev/kinds/lib/gr"
	"proa.dev/run"
	"proa.dev/run/goprocess"
)

// logBuffer collects the log of a server.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write appends to the log.
func (w *logBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// secretsTest sends secret values to a server in every possible way, and keeps them in secretValues.
type secretsTest struct {
	*testing.T
	*externalServices
	logBuffer
	server       *run.Server
	config       *rest.Config
	admin        *http.Client
	audit        string
	dir          string // the data folder
	spans        spanBuffer
	refusals     strings.Builder // the answers to requests that were refused
	secretValues []string
}

// newSecret returns a value that must not appear in any log; way names how it is sent.
func (s *secretsTest) newSecret(way string) string {
	m := "mark-" + strings.ReplaceAll(way, " ", "-") + "-hJ4kQz"
	s.secretValues = append(s.secretValues, m)
	return m
}

// startLoggingServer runs a server with the most verbose log.
func startLoggingServer(t *testing.T, policy string) *secretsTest {
	t.Helper()
	s := &secretsTest{T: t, externalServices: newExternalServices(t), audit: filepath.Join(t.TempDir(), "audit.log")}
	log := slog.New(slog.NewJSONHandler(&s.logBuffer, &slog.HandlerOptions{Level: slog.Level(-100)}))
	// Libraries log at the most verbose level, too; the product has no setting for that.
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", "10"); err != nil {
		t.Fatal(err)
	}
	goprocess.RedirectKlog(log)
	config := run.Default()
	s.dir = t.TempDir()
	config.Listen, config.DataDir, config.InMemory, config.Simulate = "127.0.0.1:0", s.dir, policy != "", 1
	config.Audit = s.audit
	config.OTLP.URL = s.spans.serve(t)
	if policy != "" {
		config.AuditPolicy = s.file("policy.yaml", policy)
	}
	config.Identity.TokenFile = s.file("tokens.csv", s.newSecret("static token")+",lisa,1,\"system:masters\"\n")
	config.Identity.Hook, config.Identity.HookVersion = s.webhookKubeconfig("/echo/tokens"), "v1"
	config.Permission.Modes, config.Permission.Hook.Kubeconfig, config.Permission.Hook.Version = []string{"Node", "RBAC",
		"Webhook"}, s.webhookKubeconfig("/echo/access"), "v1"
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan *run.Server, 1), make(chan error, 1)
	go func() { ended <- run.Serve(ctx, config, log, func(s *run.Server) { ready <- s }) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server has ended: %v", err)
		}
		_ = flags.Set("v", "0")
		klog.ClearLogger()
	})
	t.Cleanup(stop)
	select {
	case s.server = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	var err error
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.server.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	s.admin = s.client(s.config)
	return s
}

// client returns an HTTP client that does not log what it sends, unlike that of client-go.
func (s *secretsTest) client(config *rest.Config) *http.Client {
	s.T.Helper()
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		s.T.Fatal(err)
	}
	t := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
	s.T.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// send sends a request and returns the answer. Without credentials in its headers it is a request of the administrator.
func (s *secretsTest) send(method, path, media, body string, headers ...string) (int, string) {
	s.T.Helper()
	client := s.admin
	if slices.Contains(headers, "Authorization") || slices.Contains(headers, "Sec-WebSocket-Protocol") {
		client = s.client(&rest.Config{Host: s.config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: s.config.CAData}})
	}
	req, err := http.NewRequestWithContext(s.T.Context(), method, s.config.Host+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	if res.StatusCode >= http.StatusBadRequest || len(res.Header.Values("Warning")) > 0 {
		fmt.Fprintln(&s.refusals, method, req.URL.Path, media, res.Header.Values("Warning"))
	}
	if res.StatusCode >= http.StatusBadRequest {
		s.refusals.Write(text)
	}
	return res.StatusCode, string(text)
}

// mustSucceed sends a request that must succeed, so that the secret value is really processed, and returns the answer.
func (s *secretsTest) mustSucceed(method, path, media, body string, headers ...string) string {
	s.T.Helper()
	code, text := s.send(method, path, media, body, headers...)
	if code < 200 || code > 299 {
		s.T.Errorf("%s %s: %d %.300s", method, path, code, text)
	}
	return text
}

// mustFail sends a request that must fail.
func (s *secretsTest) mustFail(method, path, media, body string, headers ...string) {
	s.T.Helper()
	if code, text := s.send(method, path, media, body, headers...); code < 300 {
		s.T.Errorf("%s %s: %d %.300s", method, path, code, text)
	}
}

const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	secretsPath  = "/api/v1/namespaces/default/secrets"
	accountsPath = "/api/v1/namespaces/default/serviceaccounts"
)

// sendCredentials sends requests with valid and invalid credentials.
func (s *secretsTest) sendCredentials() {
	s.mustSucceed("GET", "/version", "", "", "Authorization", "Bearer "+s.secretValues[0])
	jwt := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"1"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"x","sub":"`+s.newSecret("claim")+`"}`)) + "."
	for _, value := range []string{
		"Bearer " + s.newSecret("bearer"), "bearer " + s.newSecret("small"), "Bearer  " + s.newSecret("two spaces"), "Bearer " + jwt + s.newSecret("signature"),
		s.newSecret("no scheme"), "Bearer abcdef." + s.newSecret("bootstrap"), "Bearer abcdef.0123456789abcdef" + s.newSecret("long"),
		"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+s.newSecret("password"))),
		"Bearer " + s.newSecret("token") + " " + s.newSecret("more"), "Bearer " + s.newSecret("echo"), "Bearer " + s.newSecret("garbage"),
		"Bearer " + s.newSecret("kind"),
	} {
		for _, path := range []string{"/api/v1/namespaces/default/pods", "/version", "/nothing"} {
			s.send("GET", path, "", "", "Authorization", value)
			s.send("GET", path, "", "", "Authorization", value, "Impersonate-User", "somebody", "Impersonate-Extra-Scopes", "all")
		}
	}
	for _, token := range []string{s.secretValues[0], s.newSecret("websocket")} {
		s.send("GET", "/api/v1/namespaces/default/pods?watch=true&timeoutSeconds=1", "", "", "Connection", "Upgrade", "Upgrade",
			"websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==",
			"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token))+
				", base64.binary.k8s.io")
	}
	for _, key := range []string{"access_token", "token", "id_token", "password", "bearer_token"} {
		for _, path := range []string{"/api/v1/namespaces/default/pods", "/version", "/nothing", "/api/v1/nowhere"} {
			s.send("GET", path+"?limit=1&"+key+"="+s.newSecret("query "+key), "", "")
		}
	}
	s.send("GET", "/api/v1/namespaces/default/pods", "", "", "Impersonate-User", "someone", "Impersonate-Group", "", "X-Remote-User",
		s.newSecret("remote user"), "Cookie", "session="+s.newSecret("cookie"), "X-Api-Key", s.newSecret("header"))
}

// sendTokens creates and reviews tokens.
func (s *secretsTest) sendTokens() {
	const reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
	review := func(token string) string {
		return `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + token + `"}}`
	}
	s.mustSucceed("POST", reviews, jsonType, review(s.secretValues[0]))
	s.mustSucceed("POST", reviews, jsonType, review(s.newSecret("reviewed")))
	s.mustSucceed("POST", reviews, jsonType, review("abcdef."+s.newSecret("reviewed bootstrap")))
	s.mustFail("POST", reviews, jsonType, review(s.newSecret("review cut"))[:90])
	s.mustFail("POST", reviews, jsonType, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":["`+s.newSecret("review list")+`"]}}`)
	s.mustFail("POST", reviews+"?fieldValidation=Strict", jsonType, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a","tokn":"`+s.newSecret("review field")+`"}}`)
	s.mustSucceed("POST", accountsPath, jsonType, `{"metadata":{"name":"robot"}}`)
	token := func(text string) string {
		var r struct{ Status struct{ Token string } }
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Status.Token == "" {
			s.T.Fatalf("no token: %v", err)
		}
		parts := strings.Split(r.Status.Token, ".")
		s.secretValues = append(s.secretValues, parts[2], parts[1])
		return r.Status.Token
	}
	issued := token(s.mustSucceed("POST", accountsPath+"/robot/token", jsonType, `{"spec":{"expirationSeconds":3600}}`))
	s.mustFail("GET", secretsPath, "", "", "Authorization", "Bearer "+issued)
	s.mustFail("GET", secretsPath, "", "", "Authorization", "Bearer "+issued+"x")
	s.mustSucceed("POST", reviews, jsonType, review(issued))
	s.mustSucceed("POST", secretsPath, jsonType, `{"metadata":{"name":"bound"}}`)
	token(s.mustSucceed("POST", accountsPath+"/robot/token", jsonType, `{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound"}}}`))
	s.mustFail("POST", accountsPath+"/robot/token", jsonType, `{"spec":{"expirationSeconds":1,"audiences":["x"]},"status":{"token":"`+s.newSecret("sent back")+`"}}`)
	s.mustSucceed("DELETE", accountsPath+"/robot", "", "")
	s.mustFail("GET", secretsPath, "", "", "Authorization", "Bearer "+issued)
}

// sendSecrets writes and reads valid Secrets.
func (s *secretsTest) sendSecrets() {
	b64 := func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }
	secret := func(name, kind, data string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"type":"` + kind + `",` + data + `}`
	}
	s.mustSucceed("POST", secretsPath, jsonType,
		secret("one", "Opaque", `"data":{"a":"`+b64(s.newSecret("created"))+`"},"stringData":{"b":"`+s.newSecret("string")+`"}`))
	s.mustSucceed("POST", secretsPath+"?dryRun=All", jsonType, secret("dry", "Opaque", `"stringData":{"b":"`+s.newSecret("dry")+`"}`))
	s.mustSucceed("PUT", secretsPath+"/one", jsonType, secret("one", "Opaque", `"stringData":{"a":"`+s.newSecret("updated")+`"}`))
	s.mustSucceed("PATCH", secretsPath+"/one", "application/merge-patch+json", `{"stringData":{"c":"`+s.newSecret("merged")+`"}}`)
	s.mustSucceed("PATCH", secretsPath+"/one", "application/strategic-merge-patch+json", `{"data":{"d":"`+b64(s.newSecret("strategic"))+`"}}`)
	s.mustSucceed("PATCH", secretsPath+"/one", "application/json-patch+json",
		`[{"op":"add","path":"/data/e","value":"`+b64(s.newSecret("patched"))+`"}]`)
	s.mustSucceed("PATCH", secretsPath+"/applied?fieldManager=a", "application/apply-patch+yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: applied}\nstringData: {a: "+s.newSecret("applied")+"}\n")
	s.mustFail("PATCH", secretsPath+"/applied?fieldManager=b", "application/apply-patch+yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: applied}\nstringData: {a: "+s.newSecret("conflict")+"}\n")
	s.mustSucceed("POST", secretsPath, yamlType, "apiVersion: v1\nkind: Secret\nmetadata: {name: yaml}\nstringData: {a: "+s.newSecret("yaml")+"}\n")
	s.mustSucceed("POST", secretsPath, jsonType, secret("frozen", "Opaque", `"immutable":true,"stringData":{"b":"`+s.newSecret("frozen")+`"}`))
	pull := `{"auths":{"registry.test":{"username":"u","password":"` + s.newSecret("pull password") + `","auth":"` +
		b64("u:"+s.newSecret("pull auth")) + `"}}}`
	s.mustSucceed("POST", secretsPath, jsonType, secret("pull", "kubernetes.io/dockerconfigjson", `"data":{".dockerconfigjson":"`+b64(pull)+`"}`))
	s.mustSucceed("POST", "/api/v1/namespaces/default/pods", jsonType, `{"metadata":{"name":"p"},"spec":{"imagePullSecrets":[{"name":"pull"}],"containers":[{"name":"c","image":"registry.test/i","envFrom":[{"secretRef":{"name":"one"}}]}]}}`)
	s.mustSucceed("POST", "/api/v1/namespaces/kube-system/secrets", jsonType, secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token", `"stringData":{"token-id":"abcdef","token-secret":"0123456789hjkqzx","usage-bootstrap-authentication":"true"}`))
	s.secretValues = append(s.secretValues, "0123456789hjkqzx")
	s.send("GET", secretsPath, "", "", "Authorization", "Bearer abcdef.0123456789hjkqzx")
	s.mustSucceed("POST", accountsPath, jsonType, `{"metadata":{"name":"old"}}`)
	s.mustSucceed("POST", secretsPath, jsonType, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"old","annotations":{"kubernetes.io/service-account.name":"old"}},"type":"kubernetes.io/service-account-token"}`)
	for range 500 { // until a controller has added the token
		var have struct{ Data map[string][]byte }
		if err := json.Unmarshal([]byte(s.mustSucceed("GET", secretsPath+"/old", "", "")), &have); err != nil {
			s.T.Fatal(err)
		}
		if parts := strings.Split(string(have.Data["token"]), "."); len(parts) == 3 {
			s.secretValues = append(s.secretValues, parts[2])
			s.mustFail("GET", secretsPath, "", "", "Authorization", "Bearer "+string(have.Data["token"]))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, accept := range []string{jsonType, "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		s.mustSucceed("GET", secretsPath, "", "", "Accept", accept)
		s.mustSucceed("GET", secretsPath+"?watch=true&timeoutSeconds=1&resourceVersion=0", "", "", "Accept", accept)
	}
}

// sendInvalidSecrets sends invalid Secrets, each with an error that might quote what was sent.
func (s *secretsTest) sendInvalidSecrets() {
	for _, body := range []string{
		`{"metadata":{"name":"w"},"data":{"a":"%s"}}`, `{"metadata":{"name":"w"},"data":{"a":["%s"]}}`,
		`{"metadata":{"name":"w"},"data":"%s"}`, `{"metadata":{"name":"w"},"stringData":{"a":{"b":"%s"}}}`,
		`{"metadata":{"name":"w"},"stringData":{"a":"%s"`, `{"metadata":{"name":"w"},"stringData":{"a":"%s"}}}`,
		`{"metadata":{"name":"w"},"stringData":{"a":"%s",}}`, `{"metadata":{"name":"w"},"stringData":{"a":%s}}`,
		`{"metadata":{"name":"W_"},"stringData":{"a":"%s"}}`, `{"metadata":{"name":"w","namespace":"other"},"stringData":{"a":"%s"}}`, `{"kind":"Pod","metadata":{"name":"w"},"stringData":{"a":"%s"}}`,
		`{"metadata":{"name":"w"},"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"%s"}}`, `{"metadata":{"name":"w"},"type":"kubernetes.io/dockercfg","stringData":{".dockercfg":"{\"a\":%s}"}}`,
		`{"metadata":{"name":"w"},"type":"kubernetes.io/tls","stringData":{"tls.key":"%s"}}`, `{"metadata":{"name":"w"},"type":"kubernetes.io/basic-auth","stringData":{"pass":"%s"}}`, `{"metadata":{"name":"w"},"type":"kubernetes.io/ssh-auth","stringData":{"key":"%s"}}`,
		`{"metadata":{"name":"w"},"stringData":{"a":"%s","a":"b"}}`, `{"metadata":{"name":"w"},"stringData":{"a":"\ud800%s"},"immutable":"yes"}`, "[%q]", "%q", "%s", `{"metadata":{"name":"w"},"stringData":{"a":"%s` + "\x01\xff" + `"}}`,
	} {
		for _, media := range []string{jsonType, yamlType, "application/vnd.kubernetes.protobuf", "application/cbor", "text/plain", ""} {
			s.send("POST", secretsPath+"?fieldValidation=Strict", media,
				fmt.Sprintf(body, s.newSecret("wrong "+fmt.Sprint(len(s.secretValues)))))
		}
		s.send("POST", secretsPath, "application/vnd.kubernetes.protobuf",
			"k8s\x00"+fmt.Sprintf(body, s.newSecret("proto "+fmt.Sprint(len(s.secretValues)))))
		for _, media := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json",
			"application/json-patch+json", "application/apply-patch+yaml"} {
			s.send("PATCH", secretsPath+"/one?fieldManager=x&fieldValidation=Strict", media,
				fmt.Sprintf(body, s.newSecret("patch "+fmt.Sprint(len(s.secretValues)))))
		}
	}
	for _, patch := range []string{
		`[{"op":"test","path":"/data/a","value":"%s"}]`, `[{"op":"add","path":"/data/a/b/c","value":"%s"}]`,
		`[{"op":"%s","path":"/data/a"}]`, `[{"op":"replace","path":"/stringData/none","value":"%s"}]`,
		`[{"op":"add","path":"/data/x","value":{"%s":1}}]`, `[{"op":"add","path":"/data","value":"%s"}]`,
	} {
		s.send("PATCH", secretsPath+"/one", "application/json-patch+json",
			fmt.Sprintf(patch, s.newSecret("json patch "+fmt.Sprint(len(s.secretValues)))))
	}
	for _, applied := range []string{"stringData: {a: [%s]}", "data: {a: {b: %s}}", "stringData: %s", "data: [%s]",
		"stringData: {a: '%s', a: b}", "stringData: {a: %s", "typ: {a: %s}"} {
		s.send("PATCH", secretsPath+"/one?fieldManager=x&force=true", "application/apply-patch+yaml",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: one}\n"+
				fmt.Sprintf(applied, s.newSecret("apply "+fmt.Sprint(len(s.secretValues)))))
	}
	s.mustFail("PUT", secretsPath+"/frozen", jsonType,
		`{"metadata":{"name":"frozen"},"immutable":true,"stringData":{"b":"`+s.newSecret("thawed")+`"}}`)
	s.mustFail("PUT", secretsPath+"/one", jsonType, `{"metadata":{"name":"one","resourceVersion":"1"},"stringData":{"b":"`+s.newSecret("late")+`"}}`)
	s.mustFail("PUT", secretsPath+"/one", jsonType, `{"metadata":{"name":"one"},"type":"other","stringData":{"b":"`+s.newSecret("retyped")+`"}}`)
	s.mustFail("POST", secretsPath, jsonType,
		`{"metadata":{"name":"big"},"stringData":{"b":"`+strings.Repeat(s.newSecret("big"), 100_000)+`"}}`)
	s.mustFail("POST", secretsPath, jsonType,
		`{"metadata":{"name":"bigger"},"stringData":{"b":"`+strings.Repeat(s.newSecret("bigger"), 300_000)+`"}}`)
	// A user who may patch a Secret need not be allowed to read it: errors must not contain stored values.
	for media, patch := range map[string]string{
		"application/merge-patch+json":           `{"data":{"x":["y"]}}`,
		"application/json-patch+json":            `[{"op":"add","path":"/data/x","value":["y"]}]`,
		"application/strategic-merge-patch+json": `{"data":{"x":["y"]}}`,
	} {
		_, text := s.send("PATCH", secretsPath+"/one", media, patch)
		if stored := base64.StdEncoding.EncodeToString([]byte("mark-updated-hJ4kQz")); strings.Contains(text, stored) ||
			!strings.Contains(text, "(not shown)") {
			s.T.Errorf("%s: %.500s", media, text)
		}
	}
}

// addPrivateKeys adds the private keys of the cluster, line by line, and that of the administrator's kubeconfig to the values
// that must not appear.
func (s *secretsTest) addPrivateKeys() {
	s.secretValues = append(s.secretValues, base64.StdEncoding.EncodeToString(s.config.KeyData)[40:])
	found := 0
	err := filepath.WalkDir(filepath.Dir(s.server.Kubeconfig()), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			return err
		}
		found++
		_, text, _ = bytes.Cut(text, []byte("PRIVATE KEY-----\n"))
		text, _, _ = bytes.Cut(text, []byte("\n-----END"))
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); len(line) > 20 {
				s.secretValues = append(s.secretValues, line)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		s.T.Errorf("%d private keys: %v", found, err)
	}
}

// readOutputs returns the logs and other outputs that users other than the owner of a secret can read, by name.
func (s *secretsTest) readOutputs() map[string]string {
	out := map[string]string{"metrics": s.mustSucceed("GET", "/metrics", "", "")}
	admin := s.server.Client(&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	secret, err := admin.Get(s.T.Context(), gr.Secrets, "default", "one", "")
	if err != nil {
		s.T.Fatal(err)
	}
	out["hop records"] = fmt.Sprintf("%+v", s.server.HopsOf(secret.GetUID()))
	out["events"] = s.mustSucceed("GET", "/api/v1/events", "", "") + s.mustSucceed("GET", "/apis/events.k8s.io/v1/events", "", "")
	audit, err := os.ReadFile(s.audit)
	if err != nil {
		s.T.Fatal(err)
	}
	out["audit log"] = string(audit)
	s.addShownOutputs(out)
	s.logBuffer.mu.Lock()
	defer s.logBuffer.mu.Unlock()
	out["log"] = s.text.String()
	for what, text := range out {
		if len(text) < 100 {
			s.T.Errorf("the %s is nearly empty: %s", what, text)
		}
	}
	return out
}

// encodings returns a value as it is, and as it looks in hexadecimal and in base64 at any offset of a longer text.
func encodings(value string) (out []string) {
	out = []string{value, hex.EncodeToString([]byte(value))}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			text := e.EncodeToString([]byte("xx"[:shift] + value))
			out = append(out, text[2*shift:len(text)-4])
		}
	}
	return out
}

// TestSecretsAreNotShown checks that nothing of what the server says contains a bearer token, bootstrap token, service account token, pull
// secret, value of a Secret or private key: neither its most verbose log, nor the audit log, Events, records of hops, traces, spans,
// explanations, metrics, tables, other objects, errors, nor the files of the data folder. Only who reads a Secret gets its values.
func TestSecretsAreNotShown(t *testing.T) {
	for name, policy := range map[string]string{"usual": "", "all bodies": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"} {
		t.Run(name, func(t *testing.T) {
			s := startLoggingServer(t, policy)
			s.sendCredentials()
			s.sendTokens()
			s.sendSecrets()
			s.sendInvalidSecrets()
			s.useSecrets()
			s.addPrivateKeys()
			outputs := s.readOutputs()
			bad := 0
			for where, text := range outputs {
				for _, value := range s.secretValues {
					for _, encoded := range encodings(value) {
						at := strings.Index(text, encoded)
						if at < 0 {
							continue
						}
						if bad++; bad <= 30 {
							t.Errorf("%s is in the %s: …%s…", value, where, text[max(0, at-200):min(len(text), at+len(encoded)+60)])
						}
						break
					}
				}
			}
			t.Logf("%d values looked for, %d found", len(s.secretValues), bad)
		})
	}
}
