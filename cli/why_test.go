package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/cli/command"
)

// TestWhy runs the command against a server with a node that is not ready and a Pod, on which the user may not list other objects.
func TestWhy(t *testing.T) {
	const resource = `{"resource":"%s","scope":"%s","singularResource":"%s","responseKind":{"kind":"%s"},"verbs":["get","list"]}`
	node := `{"metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","status":"False","message":"broken"}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			fmt.Fprintf(w, `{"items":[{"versions":[{"version":"v1","resources":[%s,%s,%s]}]}]}`,
				fmt.Sprintf(resource, "nodes", "Cluster", "node", "Node"), fmt.Sprintf(resource, "pods", "Namespaced", "pod", "Pod"),
				fmt.Sprintf(resource, "namespaces", "Cluster", "namespace", "Namespace"))
		case "/api/v1/namespaces/none", "/api/v1/namespaces/none/pods/x":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","reason":"NotFound","code":404,"message":"not found","details":{"name":"x"}}`)
		case "/apis":
			const group = `{"metadata":{"name":"%s"},"versions":[{"version":"v1","resources":[%s]}]}`
			crd := fmt.Sprintf(resource, "customresourcedefinitions", "Cluster", "crd", "CustomResourceDefinition")
			custom := fmt.Sprintf(resource, "widgets", "Namespaced", "widget", "Widget") + "," +
				fmt.Sprintf(resource, "gadgets", "Namespaced", "gadget", "Gadget")
			fmt.Fprintf(w, `{"items":[%s,%s]}`, fmt.Sprintf(group, "apiextensions.k8s.io", crd), fmt.Sprintf(group, "example.com", custom))
		case "/apis/example.com/v1/namespaces/lab/widgets":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"w","namespace":"lab"},"status":{"conditions":[{"type":"Ready","status":"False"}]}}]}`)
		case "/api/v1/nodes":
			fmt.Fprint(w, `{"items":[null,`+node+`]}`)
		case "/api/v1/nodes/n1":
			fmt.Fprint(w, node)
		case "/api/v1/namespaces/shop/pods/done":
			fmt.Fprint(w, `{"metadata":{"name":"done","namespace":"shop"},"status":{"phase":"Succeeded"}}`)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","reason":"Forbidden","code":403,"message":"no"}`)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, fmt.Appendf(nil, "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: %q}}]",
		server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	closedConfig := filepath.Join(t.TempDir(), "nobody")
	if err := os.WriteFile(closedConfig, fmt.Appendf(nil, "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: %q}}]",
		closed.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"-kubeconfig=" + closedConfig, "connection refused"},
		{"", `why node/n1" shows the evidence|exit 3`},
		{"-n shop", "Nothing that could be read is stuck.|not seen: pods of namespace shop: you may not read it|exit 0"},
		{"-n none", `there is no namespace "none"; "kubectl get namespaces" lists`},
		{"pod/x -n none", `there is no namespace "none"`},
		{"-n lab", "widget/w in lab: stuck|not seen: custom objects (gadgets.example.com): you may not read it|exit 3"},
		{"-o json -n shop", `"stuck": []|"unseen": [|exit 0`},
		{"node/n1 -n shop", "node/n1: stuck at hop 11 (node)|exit 3"},
		{"pod done -n shop", "pod/done in shop: working|exit 0"},
		{"-o json pod/done -n shop", `"state": "Working"|exit 0`},
		{"pod/done -A", "name it with -n"},
		{"pod", "name one object"},
		{"ghost/x", `no resource "ghost"`},
	} {
		fs := flag.NewFlagSet("why", flag.ContinueOnError)
		run := whyCommand().Setup(fs)
		var words, names []string
		for _, word := range strings.Fields(c.args) { // flags may come after names
			if last := len(words) - 1; strings.HasPrefix(word, "-") || last >= 0 && (words[last] == "-n" || words[last] == "-o") {
				words = append(words, word)
			} else {
				names = append(names, word)
			}
		}
		if err := fs.Parse(append([]string{"-kubeconfig", file}, words...)); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := run(t.Context(), &command.Env{Out: &out}, names)
		code, isCode := errors.AsType[command.ExitCode](err)
		if err != nil && !isCode {
			fmt.Fprint(&out, err)
		} else {
			fmt.Fprintf(&out, "exit %d", code)
		}
		for _, want := range strings.Split(c.want, "|") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("why %s: no %q in\n%s", c.args, want, out.String())
			}
		}
	}
}
