package httpapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/server/state"
)

// unavailableAccounts is an authenticator that cannot look up the account of a token.
type unavailableAccounts struct{}

func (unavailableAccounts) Request(*http.Request) (user.Info, error) {
	return nil, state.ErrAccountsUnavailable
}

// TestNamesOfRefusedCreates checks that the record of a refused create has the name that is in its body, whoever sent it and whether or
// not the body was decoded.
func TestNamesOfRefusedCreates(t *testing.T) {
	const maps, roles = "/api/v1/namespaces/ns/configmaps", "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	const denied = `is forbidden: User "mallory" cannot create resource "configmaps" in API group "" in the namespace "ns"`
	const misspelt = `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dada"`
	proto := "Content-Type: application/vnd.kubernetes.protobuf"
	for _, c := range []struct{ what, who, path, media, body, want string }{
		{"hop 3, JSON", "mallory", maps, "", `{"kind":"ConfigMap","metadata":{"name":"a"}}`,
			"create configmaps ns/a by mallory 403 refused by authorize: configmaps " + denied},
		{"hop 3, YAML", "mallory", maps, "Content-Type: application/yaml", "kind: ConfigMap\nmetadata: {name: a}\n",
			"create configmaps ns/a by mallory 403 refused by authorize: configmaps " + denied},
		{"hop 3, protobuf", "mallory", maps, proto, "k8s\x00\x12\x05\x0a\x03\x0a\x01a",
			"create configmaps ns/a by mallory 403 refused by authorize: configmaps " + denied},
		{"hop 3, an invalid name", "mallory", maps, "", `{"kind":"ConfigMap","metadata":{"name":"a/b"}}`,
			"create configmaps ns/ by mallory 403 refused by authorize: configmaps " + denied},
		{"hop 3, a generated name", "mallory", maps, "", `{"kind":"ConfigMap","metadata":{"generateName":"a-"}}`,
			"create configmaps ns/ by mallory 403 refused by authorize: configmaps " + denied},
		{"hop 5, a misspelt field", "alice", maps + "?fieldValidation=Strict", "",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"dada":{}}`,
			"create configmaps ns/a by alice 400 refused by schema: " + misspelt},
		{"hop 5, a misspelt field in YAML", "alice", maps + "?fieldValidation=Strict", "Content-Type: application/yaml",
			"apiVersion: v1\nkind: ConfigMap\ndada: {}\nmetadata:\n  name: a\n", "create configmaps ns/a by alice 400 refused by schema: " + misspelt},
		{"hop 2", "", maps, "", `{"kind":"ConfigMap","metadata":{"name":"a"}}`, "create configmaps ns/a by  401 refused by authenticate: Unauthorized"},
		{"hop 2, an invalid name", "", maps, "", `{"kind":"ConfigMap","metadata":{"name":"<a>"}}`,
			"create configmaps ns/ by  401 refused by authenticate: Unauthorized"},
		{"hop 2, without a namespace", "", roles, "", `{"metadata":{"name":"system:a"}}`,
			"create clusterroles.rbac.authorization.k8s.io /system:a by  401 refused by authenticate: Unauthorized"},
		{"hop 2, a subresource", "", maps + "/b/status", "", `{"metadata":{"name":"a"}}`,
			"create configmaps ns/b by  401 refused by authenticate: Unauthorized"},
		{"hop 2, the accounts of tokens are not known", "unknown", maps, "", `{"kind":"ConfigMap","metadata":{"name":"a"}}`,
			"create configmaps ns/a by  503 refused by authenticate: the store is not available, and so it cannot be told whether the token is good; try again"},
	} {
		r := newRecordRig(t)
		r.Handler.unread.Patience = time.Minute // the machine may be busy
		if c.who == "unknown" {
			r.Handler.Authn = unavailableAccounts{}
		}
		server := httptest.NewServer(r.Handler)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Test-User", c.who)
		req.Header.Set("Content-Type", "application/json")
		if name, value, ok := strings.Cut(c.media, ": "); ok {
			req.Header.Set(name, value)
		}
		res, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		server.Close()
		got := ""
		for _, rec := range r.Recorder.Select(func(*hop.Record) bool { return true }) {
			got += describe(&rec)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s\nthe answer was %s", c.what, got, c.want, text)
		}
	}
}

// TestNameOfRefusedLocalCreate checks that the record has the name also when the caller is in this process.
func TestNameOfRefusedLocalCreate(t *testing.T) {
	r := newRecordRig(t)
	_, err := r.Client(&user.DefaultInfo{Name: "mallory"}).Create(t.Context(), configMapsResource(), configMap("a"))
	if status, ok := errors.AsType[*apierrors.StatusError](err); !ok || status.ErrStatus.Code != http.StatusForbidden {
		t.Fatal(err)
	}
	recs := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Refused == hop.Authorize })
	if len(recs) != 1 || recs[0].Name != "a" {
		t.Errorf("%+v", recs)
	}
}
