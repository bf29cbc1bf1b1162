package run_test

import (
	"bytes"
	"context"
	"encoding/base64"
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

// written is everything that a cluster writes for people to read.
type written struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write adds to it.
func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// secrets sends values that must not be readable later through a whole server, by every possible way.
type secrets struct {
	*testing.T
	*world
	written
	server *run.Server
	config *rest.Config
	admin  *http.Client
	audit  string
	marks  []string
}

// mark is a value that must not be written anywhere.
func (s *secrets) mark(way string) string {
	m := "mark-" + strings.ReplaceAll(way, " ", "-") + "-hJ4kQz"
	s.marks = append(s.marks, m)
	return m
}

// everything runs a server that logs all it can.
func everything(t *testing.T, policy string) *secrets {
	t.Helper()
	s := &secrets{T: t, world: newWorld(t), audit: filepath.Join(t.TempDir(), "audit.log")}
	log := slog.New(slog.NewJSONHandler(&s.written, &slog.HandlerOptions{Level: slog.Level(-100)}))
	// Libraries say all they know, which no setting of the product lets them.
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", "10"); err != nil {
		t.Fatal(err)
	}
	goprocess.RedirectKlog(log)
	config := run.Default()
	config.Listen, config.DataDir, config.InMemory, config.Simulate = "127.0.0.1:0", t.TempDir(), true, 1
	config.Audit = s.audit
	if policy != "" {
		config.AuditPolicy = s.file("policy.yaml", policy)
	}
	config.Identity.TokenFile = s.file("tokens.csv", s.mark("static token")+",lisa,1,\"system:masters\"\n")
	config.Identity.Hook, config.Identity.HookVersion = s.hook("/echo/tokens"), "v1"
	config.Permission.Modes, config.Permission.Hook.Kubeconfig, config.Permission.Hook.Version = []string{"Node", "RBAC",
		"Webhook"}, s.hook("/echo/access"), "v1"
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

// client is none of a library that logs what it sends.
func (s *secrets) client(config *rest.Config) *http.Client {
	s.T.Helper()
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		s.T.Fatal(err)
	}
	t := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
	s.T.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// send sends a request as the administrator, or with a head of its own as nobody, and returns the answer.
func (s *secrets) send(method, path, media, body string, head ...string) (int, string) {
	s.T.Helper()
	by := s.admin
	if slices.Contains(head, "Authorization") || slices.Contains(head, "Sec-WebSocket-Protocol") {
		by = s.client(&rest.Config{Host: s.config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: s.config.CAData}})
	}
	req, err := http.NewRequestWithContext(s.T.Context(), method, s.config.Host+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	res, err := by.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// good sends a request that must succeed, so that what was sent really took its way.
func (s *secrets) good(method, path, media, body string, head ...string) string {
	s.T.Helper()
	code, text := s.send(method, path, media, body, head...)
	if code < 200 || code > 299 {
		s.T.Errorf("%s %s: %d %.300s", method, path, code, text)
	}
	return text
}

// bad sends one that must not.
func (s *secrets) bad(method, path, media, body string, head ...string) {
	s.T.Helper()
	if code, text := s.send(method, path, media, body, head...); code < 300 {
		s.T.Errorf("%s %s: %d %.300s", method, path, code, text)
	}
}

const (
	jsonType    = "application/json"
	yamlType    = "application/yaml"
	secretsPath = "/api/v1/namespaces/default/secrets"
	accounts    = "/api/v1/namespaces/default/serviceaccounts"
)

// headers are credentials in requests, right and wrong ones.
func (s *secrets) headers() {
	s.good("GET", "/version", "", "", "Authorization", "Bearer "+s.marks[0])
	jwt := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"1"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"x","sub":"`+s.mark("claim")+`"}`)) + "."
	for _, value := range []string{
		"Bearer " + s.mark("bearer"), "bearer " + s.mark("small"), "Bearer  " + s.mark("two spaces"), "Bearer " + jwt + s.mark("signature"),
		s.mark("no scheme"), "Bearer abcdef." + s.mark("bootstrap"), "Bearer abcdef.0123456789abcdef" + s.mark("long"),
		"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+s.mark("password"))),
		"Bearer " + s.mark("token") + " " + s.mark("more"), "Bearer " + s.mark("echo"), "Bearer " + s.mark("garbage"),
		"Bearer " + s.mark("kind"),
	} {
		for _, path := range []string{"/api/v1/namespaces/default/pods", "/version", "/nothing"} {
			s.send("GET", path, "", "", "Authorization", value)
			s.send("GET", path, "", "", "Authorization", value, "Impersonate-User", "somebody", "Impersonate-Extra-Scopes", "all")
		}
	}
	for _, token := range []string{s.marks[0], s.mark("websocket")} {
		s.send("GET", "/api/v1/namespaces/default/pods?watch=true&timeoutSeconds=1", "", "", "Connection", "Upgrade", "Upgrade",
			"websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==",
			"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token))+
				", base64.binary.k8s.io")
	}
	for _, key := range []string{"access_token", "token", "id_token", "password", "bearer_token"} {
		for _, path := range []string{"/api/v1/namespaces/default/pods", "/version", "/nothing", "/api/v1/nowhere"} {
			s.send("GET", path+"?limit=1&"+key+"="+s.mark("query "+key), "", "")
		}
	}
	s.send("GET", "/api/v1/namespaces/default/pods", "", "", "Impersonate-User", "someone", "Impersonate-Group", "", "X-Remote-User",
		s.mark("remote user"), "Cookie", "session="+s.mark("cookie"), "X-Api-Key", s.mark("header"))
}

// tokens are those that people ask for, and ask about.
func (s *secrets) tokens() {
	const reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
	review := func(token string) string {
		return `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + token + `"}}`
	}
	s.good("POST", reviews, jsonType, review(s.marks[0]))
	s.good("POST", reviews, jsonType, review(s.mark("reviewed")))
	s.good("POST", reviews, jsonType, review("abcdef."+s.mark("reviewed bootstrap")))
	s.bad("POST", reviews, jsonType, review(s.mark("review cut"))[:90])
	s.bad("POST", reviews, jsonType, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":["`+s.mark("review list")+`"]}}`)
	s.bad("POST", reviews+"?fieldValidation=Strict", jsonType, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a","tokn":"`+s.mark("review field")+`"}}`)
	s.good("POST", accounts, jsonType, `{"metadata":{"name":"robot"}}`)
	token := func(text string) string {
		var r struct{ Status struct{ Token string } }
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Status.Token == "" {
			s.T.Fatalf("no token: %v", err)
		}
		parts := strings.Split(r.Status.Token, ".")
		s.marks = append(s.marks, parts[2], parts[1])
		return r.Status.Token
	}
	issued := token(s.good("POST", accounts+"/robot/token", jsonType, `{"spec":{"expirationSeconds":3600}}`))
	s.bad("GET", secretsPath, "", "", "Authorization", "Bearer "+issued)
	s.bad("GET", secretsPath, "", "", "Authorization", "Bearer "+issued+"x")
	s.good("POST", reviews, jsonType, review(issued))
	s.good("POST", secretsPath, jsonType, `{"metadata":{"name":"bound"}}`)
	token(s.good("POST", accounts+"/robot/token", jsonType, `{"spec":{"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound"}}}`))
	s.bad("POST", accounts+"/robot/token", jsonType, `{"spec":{"expirationSeconds":1,"audiences":["x"]},"status":{"token":"`+s.mark("sent back")+`"}}`)
	s.good("DELETE", accounts+"/robot", "", "")
	s.bad("GET", secretsPath, "", "", "Authorization", "Bearer "+issued)
}

// values are Secrets that are right.
func (s *secrets) values() {
	b64 := func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }
	secret := func(name, kind, data string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"type":"` + kind + `",` + data + `}`
	}
	s.good("POST", secretsPath, jsonType,
		secret("one", "Opaque", `"data":{"a":"`+b64(s.mark("created"))+`"},"stringData":{"b":"`+s.mark("string")+`"}`))
	s.good("POST", secretsPath+"?dryRun=All", jsonType, secret("dry", "Opaque", `"stringData":{"b":"`+s.mark("dry")+`"}`))
	s.good("PUT", secretsPath+"/one", jsonType, secret("one", "Opaque", `"stringData":{"a":"`+s.mark("updated")+`"}`))
	s.good("PATCH", secretsPath+"/one", "application/merge-patch+json", `{"stringData":{"c":"`+s.mark("merged")+`"}}`)
	s.good("PATCH", secretsPath+"/one", "application/strategic-merge-patch+json", `{"data":{"d":"`+b64(s.mark("strategic"))+`"}}`)
	s.good("PATCH", secretsPath+"/one", "application/json-patch+json",
		`[{"op":"add","path":"/data/e","value":"`+b64(s.mark("patched"))+`"}]`)
	s.good("PATCH", secretsPath+"/applied?fieldManager=a", "application/apply-patch+yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: applied}\nstringData: {a: "+s.mark("applied")+"}\n")
	s.bad("PATCH", secretsPath+"/applied?fieldManager=b", "application/apply-patch+yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: applied}\nstringData: {a: "+s.mark("conflict")+"}\n")
	s.good("POST", secretsPath, yamlType, "apiVersion: v1\nkind: Secret\nmetadata: {name: yaml}\nstringData: {a: "+s.mark("yaml")+"}\n")
	s.good("POST", secretsPath, jsonType, secret("frozen", "Opaque", `"immutable":true,"stringData":{"b":"`+s.mark("frozen")+`"}`))
	pull := `{"auths":{"registry.test":{"username":"u","password":"` + s.mark("pull password") + `","auth":"` +
		b64("u:"+s.mark("pull auth")) + `"}}}`
	s.good("POST", secretsPath, jsonType, secret("pull", "kubernetes.io/dockerconfigjson", `"data":{".dockerconfigjson":"`+b64(pull)+`"}`))
	s.good("POST", "/api/v1/namespaces/default/pods", jsonType, `{"metadata":{"name":"p"},"spec":{"imagePullSecrets":[{"name":"pull"}],"containers":[{"name":"c","image":"registry.test/i","envFrom":[{"secretRef":{"name":"one"}}]}]}}`)
	s.good("POST", "/api/v1/namespaces/kube-system/secrets", jsonType, secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token", `"stringData":{"token-id":"abcdef","token-secret":"0123456789hjkqzx","usage-bootstrap-authentication":"true"}`))
	s.marks = append(s.marks, "0123456789hjkqzx")
	s.send("GET", secretsPath, "", "", "Authorization", "Bearer abcdef.0123456789hjkqzx")
	s.good("POST", accounts, jsonType, `{"metadata":{"name":"old"}}`)
	s.good("POST", secretsPath, jsonType, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"old","annotations":{"kubernetes.io/service-account.name":"old"}},"type":"kubernetes.io/service-account-token"}`)
	for range 500 { // a controller fills it
		var have struct{ Data map[string][]byte }
		if err := json.Unmarshal([]byte(s.good("GET", secretsPath+"/old", "", "")), &have); err != nil {
			s.T.Fatal(err)
		}
		if parts := strings.Split(string(have.Data["token"]), "."); len(parts) == 3 {
			s.marks = append(s.marks, parts[2])
			s.bad("GET", secretsPath, "", "", "Authorization", "Bearer "+string(have.Data["token"]))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, accept := range []string{jsonType, "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		s.good("GET", secretsPath, "", "", "Accept", accept)
		s.good("GET", secretsPath+"?watch=true&timeoutSeconds=1&resourceVersion=0", "", "", "Accept", accept)
	}
}

// mistakes are Secrets that are wrong, each in a way whose error might quote what was sent.
func (s *secrets) mistakes() {
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
			s.send("POST", secretsPath+"?fieldValidation=Strict", media, fmt.Sprintf(body, s.mark("wrong "+fmt.Sprint(len(s.marks)))))
		}
		s.send("POST", secretsPath, "application/vnd.kubernetes.protobuf",
			"k8s\x00"+fmt.Sprintf(body, s.mark("proto "+fmt.Sprint(len(s.marks)))))
		for _, media := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json",
			"application/json-patch+json", "application/apply-patch+yaml"} {
			s.send("PATCH", secretsPath+"/one?fieldManager=x&fieldValidation=Strict", media,
				fmt.Sprintf(body, s.mark("patch "+fmt.Sprint(len(s.marks)))))
		}
	}
	for _, patch := range []string{
		`[{"op":"test","path":"/data/a","value":"%s"}]`, `[{"op":"add","path":"/data/a/b/c","value":"%s"}]`,
		`[{"op":"%s","path":"/data/a"}]`, `[{"op":"replace","path":"/stringData/none","value":"%s"}]`,
		`[{"op":"add","path":"/data/x","value":{"%s":1}}]`, `[{"op":"add","path":"/data","value":"%s"}]`,
	} {
		s.send("PATCH", secretsPath+"/one", "application/json-patch+json",
			fmt.Sprintf(patch, s.mark("json patch "+fmt.Sprint(len(s.marks)))))
	}
	for _, applied := range []string{"stringData: {a: [%s]}", "data: {a: {b: %s}}", "stringData: %s", "data: [%s]",
		"stringData: {a: '%s', a: b}", "stringData: {a: %s", "typ: {a: %s}"} {
		s.send("PATCH", secretsPath+"/one?fieldManager=x&force=true", "application/apply-patch+yaml",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: one}\n"+fmt.Sprintf(applied, s.mark("apply "+fmt.Sprint(len(s.marks)))))
	}
	s.bad("PUT", secretsPath+"/frozen", jsonType,
		`{"metadata":{"name":"frozen"},"immutable":true,"stringData":{"b":"`+s.mark("thawed")+`"}}`)
	s.bad("PUT", secretsPath+"/one", jsonType, `{"metadata":{"name":"one","resourceVersion":"1"},"stringData":{"b":"`+s.mark("late")+`"}}`)
	s.bad("PUT", secretsPath+"/one", jsonType, `{"metadata":{"name":"one"},"type":"other","stringData":{"b":"`+s.mark("retyped")+`"}}`)
	s.bad("POST", secretsPath, jsonType, `{"metadata":{"name":"big"},"stringData":{"b":"`+strings.Repeat(s.mark("big"), 100_000)+`"}}`)
	s.bad("POST", secretsPath, jsonType,
		`{"metadata":{"name":"bigger"},"stringData":{"b":"`+strings.Repeat(s.mark("bigger"), 300_000)+`"}}`)
	// Who may patch a Secret need not be allowed to read it: an error does not show what is stored.
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

// keys are the private keys of the cluster, line by line, and that of the administrator's kubeconfig.
func (s *secrets) keys() {
	s.marks = append(s.marks, base64.StdEncoding.EncodeToString(s.config.KeyData)[40:])
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
				s.marks = append(s.marks, line)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		s.T.Errorf("%d private keys: %v", found, err)
	}
}

// readable is everything that others than the owner of a secret get to read, by where it is.
func (s *secrets) readable() map[string]string {
	out := map[string]string{"metrics": s.good("GET", "/metrics", "", "")}
	admin := s.server.Client(&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	secret, err := admin.Get(s.T.Context(), gr.Secrets, "default", "one", "")
	if err != nil {
		s.T.Fatal(err)
	}
	out["hop records"] = fmt.Sprintf("%+v", s.server.HopsOf(secret.GetUID()))
	out["events"] = s.good("GET", "/api/v1/events", "", "") + s.good("GET", "/apis/events.k8s.io/v1/events", "", "")
	audit, err := os.ReadFile(s.audit)
	if err != nil {
		s.T.Fatal(err)
	}
	out["audit log"] = string(audit)
	s.written.mu.Lock()
	defer s.written.mu.Unlock()
	out["log"] = s.text.String()
	for what, text := range out {
		if len(text) < 100 {
			s.T.Errorf("there is nothing in %s: %s", what, text)
		}
	}
	return out
}

// forms are how a value may be written: as it is, or in base64, at any place of a longer text.
func forms(mark string) (out []string) {
	out = []string{mark}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			text := e.EncodeToString([]byte("xx"[:shift] + mark))
			out = append(out, text[2*shift:len(text)-4])
		}
	}
	return out
}

// TestNothingSecretIsWritten is row 34 of the attacks: the log of the server at its most talkative, the audit log, Events, the records of
// hops and metrics have no bearer token, bootstrap token, token of a service account, pull secret, value of a Secret or private key.
func TestNothingSecretIsWritten(t *testing.T) {
	for name, policy := range map[string]string{"usual": "", "all bodies": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"} {
		t.Run(name, func(t *testing.T) {
			s := everything(t, policy)
			s.headers()
			s.tokens()
			s.values()
			s.mistakes()
			s.keys()
			readable := s.readable()
			bad := 0
			for where, text := range readable {
				for _, mark := range s.marks {
					for _, form := range forms(mark) {
						at := strings.Index(text, form)
						if at < 0 {
							continue
						}
						if bad++; bad <= 30 {
							t.Errorf("%s is in the %s: …%s…", mark, where, text[max(0, at-200):min(len(text), at+len(form)+60)])
						}
						break
					}
				}
			}
			t.Logf("%d values looked for, %d found", len(s.marks), bad)
		})
	}
}
