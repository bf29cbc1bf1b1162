package apireader_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client/apireader"
)

const discovery = `{"items":[{"metadata":{"name":"%s"},"versions":[{"version":"v1","resources":[
 {"resource":"%s","scope":"Namespaced","singularResource":"%s","responseKind":{"kind":"%s"},"shortNames":["%s"],"verbs":["get","list"]}]}]}]}`

// serveAPI starts an API server of two resources. It records the Authorization header, the impersonated user and the URL
// of each request.
func serveAPI(t *testing.T) (server *httptest.Server, requests *[]string) {
	requests = &[]string{}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as := ""
		if user := r.Header.Get("Impersonate-User"); user != "" {
			as = fmt.Sprintf(" as %s in %s", user, r.Header.Values("Impersonate-Group"))
		}
		*requests = append(*requests, strings.TrimSpace(r.Header.Get("Authorization")+as+" "+r.URL.String()))
		switch r.URL.Path {
		case "/api":
			fmt.Fprintf(w, discovery, "", "pods", "pod", "Pod", "po")
		case "/apis":
			fmt.Fprintf(w, discovery, "apps", "deployments", "deployment", "Deployment", "deploy")
		case "/api/v1/namespaces/default/pods/web":
			fmt.Fprint(w, `{"metadata":{"name":"web"}}`)
		case "/api/v1/pods":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"web"}}]}`)
		case "/api/v1/namespaces/default/pods/elsewhere":
			http.Redirect(w, r, "https://example.com/", http.StatusFound)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
		}
	}))
	t.Cleanup(server.Close)
	return server, requests
}

func load(t *testing.T, server, user string) (*apireader.Reader, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`current-context: c
contexts: [{name: c, context: {cluster: k, user: u, namespace: ""}}]
clusters: [{name: k, cluster: {server: %q}}]
users: [{name: u, user: %s}]`, server, user)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return apireader.Load(t.Context(),
		apireader.Options{Files: []string{filepath.Join(t.TempDir(), "none"), file},
			RunPlugin: func(_ context.Context, e *apireader.Exec) (apireader.Credential, error) {
				if e.Command != "login" {
					return apireader.Credential{}, errors.New("no such program")
				}
				return apireader.Credential{Token: "from-plugin"}, nil
			}})
}

func TestGetAndList(t *testing.T) {
	server, requests := serveAPI(t)
	r, err := load(t, server.URL, "{token: secret}")
	if err != nil {
		t.Fatal(err)
	}
	if r.Namespace != "default" {
		t.Errorf("the namespace is %q, want default", r.Namespace)
	}
	pods := schema.GroupResource{Resource: "pods"}
	var p corev1.Pod
	if err := r.Get(t.Context(), pods, "default", "web", &p); err != nil || p.Name != "web" {
		t.Errorf("got %q, %v", p.Name, err)
	}
	var all corev1.PodList
	if err := r.List(t.Context(), pods, "", "spec.nodeName=a b", &all); err != nil || len(all.Items) != 1 {
		t.Errorf("got %d Pods, %v", len(all.Items), err)
	}
	if err := r.Get(t.Context(), pods, "default", "hidden", &p); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal is %v, want Forbidden", err)
	}
	if err := r.Get(t.Context(), schema.GroupResource{Resource: "ghosts"}, "", "x", &p); !apierrors.IsNotFound(err) {
		t.Errorf("an unknown resource is %v, want NotFound", err)
	}
	if err := r.Get(t.Context(), pods, "default", "elsewhere", &p); err == nil {
		t.Error("a redirect was followed")
	}
	want := "Bearer secret /api|Bearer secret /apis|Bearer secret /api/v1/namespaces/default/pods/web|Bearer secret /api/v1/pods?fieldSelector=spec.nodeName%3Da+b"
	if got := strings.Join((*requests)[:4], "|"); got != want {
		t.Errorf("requests\n%s, want\n%s", got, want)
	}
}

func TestResolveResourceArguments(t *testing.T) {
	server, _ := serveAPI(t)
	r, err := load(t, server.URL, "{}")
	if err != nil {
		t.Fatal(err)
	}
	for arg, kind := range map[string]string{"po": "Pod", "pods": "Pod", "Pod": "Pod", "deploy": "Deployment",
		"deployment.apps": "Deployment"} {
		if got, err := r.Resolve(t.Context(), arg); err != nil || got.Kind != kind {
			t.Errorf("%s is %v, %v; want %s", arg, got, err, kind)
		}
	}
	if _, err := r.Resolve(t.Context(), "deploy.example.com"); err == nil {
		t.Error("a resource of another group was found")
	}
}

// TestDiscover checks that discovery has what is needed to list objects of a resource: its group, name, scope and verbs.
func TestDiscover(t *testing.T) {
	server, _ := serveAPI(t)
	r, err := load(t, server.URL, "{}")
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Discover(t.Context())
	i := slices.IndexFunc(all, func(x metav1.APIResource) bool { return x.Name == "deployments" })
	if err != nil || i < 0 || all[i].Group != "apps" || all[i].Kind != "Deployment" || !all[i].Namespaced ||
		!slices.Contains(all[i].Verbs, "list") {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestCredentials(t *testing.T) {
	server, requests := serveAPI(t)
	for user, want := range map[string]string{
		"{username: jane, password: x}": "Basic amFuZTp4 /api", "{exec: {command: login}}": "Bearer from-plugin /api", "{}": "/api",
	} {
		*requests = nil
		r, err := load(t, server.URL, user)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Resources(t.Context()); err != nil || (*requests)[0] != want {
			t.Errorf("%s: requests %q (%v), want %q", user, *requests, err, want)
		}
	}
	for _, user := range []string{"{exec: {command: other}}", "{tokenFile: missing}",
		"{client-certificate-data: Zm9v, client-key-data: Zm9v}"} {
		if _, err := load(t, server.URL, user); err == nil {
			t.Errorf("%s gives no error", user)
		}
	}
}

func TestIncompleteKubeconfigs(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                  "no current context",
		"current-context: x":  `no context "x"`,
		"current-context: [x": "read ",
		"{current-context: x, contexts: [{name: x, context: {cluster: gone}}]}": `the cluster "gone"`,
	} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := apireader.Load(t.Context(), apireader.Options{Files: []string{file}}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := apireader.Load(t.Context(), apireader.Options{Files: []string{"/nonexistent/config"}}); err == nil {
		t.Error("a missing kubeconfig gives no error")
	}
}

// TestRelativePathsOfKubeconfigs checks that a relative path is resolved from the folder of the kubeconfig that contains it,
// not from that of the first kubeconfig.
func TestRelativePathsOfKubeconfigs(t *testing.T) {
	server, requests := serveAPI(t)
	first, second := t.TempDir(), t.TempDir()
	write := func(folder, name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write(first, "token", "wrong")
	write(second, "token", "right\r\n")
	files := []string{
		write(first, "config", "current-context: c\r\ncontexts: [{name: c, context: {cluster: k, user: u}}]\r\n"),
		write(second, "config", fmt.Sprintf(`clusters: [{name: k, cluster: {server: %q}}]
users: [{name: u, user: {tokenFile: token, as: jane, as-groups: [a, b]}}, {name: v, user: {exec: {command: ./bin/login}}}]
contexts: [{name: v, context: {cluster: k, user: v}}]`, server.URL)),
	}
	r, err := apireader.Load(t.Context(), apireader.Options{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resources(t.Context()); err != nil || (*requests)[0] != "Bearer right as jane in [a b] /api" {
		t.Errorf("requests %q, %v", *requests, err)
	}
	ran := ""
	_, err = apireader.Load(t.Context(), apireader.Options{Files: files, Context: "v",
		RunPlugin: func(_ context.Context, e *apireader.Exec) (apireader.Credential, error) {
			ran = e.Command
			return apireader.Credential{}, nil
		}})
	if want := filepath.Join(second, "bin", "login"); ran != want {
		t.Errorf("ran %s, want %s", ran, want)
	}
	if err == nil || !strings.Contains(err.Error(), "neither a token nor a certificate") {
		t.Errorf("a plugin that prints nothing: %v", err)
	}
}

// TestReload checks that a reloaded reader has new credentials, but the same context and server, even if the kubeconfig has
// another current context now.
func TestReload(t *testing.T) {
	dev, requests := serveAPI(t)
	prod, prodRequests := serveAPI(t)
	file := filepath.Join(t.TempDir(), "config")
	write := func(current, cluster, token string) {
		text := fmt.Sprintf(`current-context: %s
contexts: [{name: dev, context: {cluster: %s, user: u}}, {name: prod, context: {cluster: prod, user: v}}]
clusters: [{name: dev, cluster: {server: %q}}, {name: prod, cluster: {server: %q}}]
users: [{name: u, user: {token: %s}}, {name: v, user: {exec: {command: login}}}]`, current, cluster, dev.URL, prod.URL, token)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("dev", "dev", "old")
	r, err := apireader.Load(t.Context(), apireader.Options{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	write("prod", "dev", "new")
	for range 2 { // a reloaded reader can be reloaded again
		if r, err = r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Resources(t.Context()); err != nil || len(*prodRequests) > 0 || !strings.HasPrefix((*requests)[0], "Bearer new ") {
		t.Errorf("requests %q and %q, %v", *requests, *prodRequests, err)
	}
	write("dev", "prod", "new")
	if _, err := r.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a context that leads to another server: %v", err)
	}
}

// TestErrorsContainNoPasswords checks that errors contain neither the password of a server's URL nor that of a proxy.
func TestErrorsContainNoPasswords(t *testing.T) {
	for _, cluster := range []string{
		"{server: 'http://jane:hidden@127.0.0.1:1'}", "{server: 'http://jane:hidden@127.0.0.1:x'}",
		"{server: 'http://127.0.0.1:1', proxy-url: 'http://jane:hidden@x:y'}",
		"{server: 'http://192.0.2.1:1', proxy-url: 'http://jane:hidden@127.0.0.1:1'}",
	} {
		file := filepath.Join(t.TempDir(), "config")
		text := "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: " + cluster + "}]"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := apireader.Load(t.Context(), apireader.Options{Files: []string{file}})
		if err == nil {
			_, err = r.Resources(t.Context())
		}
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", cluster, err)
		}
	}
}

// TestUnusableResponses checks the errors for servers that are too old, and for one whose error body does not end.
func TestUnusableResponses(t *testing.T) {
	for want, respond := range map[string]http.HandlerFunc{
		"too old": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		},
		"longer than 1 MB": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat("no ", 1<<16))
			}
		},
	} {
		server := httptest.NewServer(respond)
		r, err := load(t, server.URL, "{token: secret}")
		if err == nil {
			_, err = r.Resources(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, want)
		}
		server.CloseClientConnections()
		server.Close()
	}
}
