package httpapi_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// TestHostileInput checks that the input of clients is bounded. Each case is known to have crashed another server.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t)
	w := newHTTPClient(t, c)
	const maps = "/api/v1/namespaces/default/configmaps"
	yaml := "Content-Type: application/yaml"
	configMap := func(fields string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},` + fields + `}`
	}

	t.Run("yaml aliases", func(t *testing.T) {
		var b strings.Builder
		b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\ndata:\n  a: &a [x,x,x,x,x,x,x,x,x,x]\n")
		for i := 'b'; i <= 'k'; i++ {
			fmt.Fprintf(&b, "  %c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
		}
		w.status(http.StatusBadRequest, "POST", maps, b.String(), yaml)
	})
	t.Run("yaml nesting", func(t *testing.T) {
		w.status(http.StatusBadRequest, "POST", maps, "data: "+strings.Repeat("[", 100000), yaml)
		w.status(http.StatusBadRequest, "POST", maps, "data: "+strings.Repeat("{a: ", 20000), yaml)
	})
	t.Run("yaml quadratic scanner", func(t *testing.T) {
		w.status(http.StatusBadRequest, "POST", maps, strings.Repeat("a:\n- ", 5000)+"["+strings.Repeat("\"\\u0020", 1000), yaml)
	})
	t.Run("json nesting", func(t *testing.T) {
		w.status(http.StatusBadRequest, "POST", maps, `{"data":`+strings.Repeat(`{"a":`, 500000), "Content-Type: application/json")
		w.status(http.StatusBadRequest, "POST", maps, strings.Repeat("[", 1000000))
	})
	t.Run("json odds", func(t *testing.T) {
		w.status(http.StatusBadRequest, "POST", "/api/v1/namespaces/default/services",
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":1e400}]}}`)
		w.status(http.StatusBadRequest, "POST", "/api/v1/namespaces/default/services",
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":99999999999999999999}]}}`)
		w.status(http.StatusBadRequest, "POST", maps+"?fieldValidation=Strict", configMap(`"data":{"a":"1","a":"2"}`))
		w.status(http.StatusBadRequest, "POST", maps, "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\x00\"}}")
		w.status(http.StatusUnprocessableEntity, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x\u0000"}}`)
		w.status(http.StatusBadRequest, "POST", maps, "")
		w.status(http.StatusBadRequest, "POST", maps, "null garbage")
	})
	t.Run("json patch operations", func(t *testing.T) {
		w.must(http.StatusCreated, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"patched"},"data":{"a":"`+strings.Repeat("x", 1000)+`"}}`)
		patch := "Content-Type: application/json-patch+json"
		op := `{"op":"copy","from":"/data/a","path":"/data/b"}`
		many := "[" + strings.Repeat(op+",", 20000) + op + "]"
		w.status(http.StatusRequestEntityTooLarge, "PATCH", maps+"/patched", many, patch)
		grow := `[{"op":"copy","from":"/data","path":"/data2"}` + strings.Repeat(`,{"op":"copy","from":"","path":"/x"}`, 60) + `]`
		code, text := w.do("PATCH", maps+"/patched", grow, patch)
		if code != http.StatusUnprocessableEntity && code != http.StatusRequestEntityTooLarge {
			t.Errorf("a patch that doubles the document: %d %.200s", code, text)
		}
	})
	t.Run("body size", func(t *testing.T) {
		w.status(http.StatusRequestEntityTooLarge, "POST", maps, configMap(`"data":{"a":"`+strings.Repeat("x", 4<<20)+`"}`))
	})
	t.Run("protobuf", func(t *testing.T) {
		proto := "Content-Type: application/vnd.kubernetes.protobuf"
		for _, body := range []string{"k8s\x00", "k8s", "k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "k8s\x00\x12\x7f\x01",
			"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0f\x0f\x0f\x0f\x0f", "junk", strings.Repeat("\xff", 1000)} {
			w.status(http.StatusBadRequest, "POST", maps, body, proto)
		}
	})
	t.Run("paths", func(t *testing.T) {
		for path, want := range map[string]int{
			"/api/v1/namespaces/default/nodes":                                   404, // a cluster-scoped resource in a namespace
			"/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets":            404,
			"/api/v1/namespaces/default/configmaps/a%2fb":                        404,
			"/api/v1/namespaces/default/configmaps/%2e%2e":                       400,
			"/api/v1/namespaces/default/configmaps/a%00b":                        400,
			"/api/v1/namespaces/..%2fkube-system/configmaps":                     404,
			"/api/v1/namespaces/default/configmaps/" + strings.Repeat("a", 5000): 400,
			"/apis/apps/v1/namespaces/default/configmaps/x":                      404,
			"/api/v2/pods":    404,
			"/apis/nope/v1/x": 404,
		} {
			if code, text := w.do("GET", path, ""); code != want {
				t.Errorf("%.80s: %d, want %d: %.100s", path, code, want, text)
			}
		}
		for _, name := range []string{"../x", "a/b", "..", "a\\u0000b", "A", strings.Repeat("a", 300)} {
			w.status(http.StatusUnprocessableEntity, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`)
		}
	})
	t.Run("selectors", func(t *testing.T) {
		w.status(http.StatusBadRequest, "GET", maps+"?labelSelector="+strings.Repeat("(", 1000), "")
		w.status(http.StatusBadRequest, "GET", maps+"?fieldSelector=a==b==c", "")
		w.status(http.StatusBadRequest, "GET", maps+"?fieldSelector=data.x=1", "")
		w.status(http.StatusBadRequest, "GET", maps+"?limit=ten", "")
	})
	t.Run("continue tokens", func(t *testing.T) {
		for _, token := range []string{"x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzL2t1YmUtc3lzdGVtL2EifQ", strings.Repeat("A", 100000)} {
			w.status(http.StatusBadRequest, "GET", maps+"?limit=1&continue="+token, "")
		}
	})
	t.Run("the server is well", func(t *testing.T) {
		if code, text := w.do("GET", "/readyz?verbose", ""); code != http.StatusOK {
			t.Errorf("readyz: %d %s", code, text)
		}
	})
}

// TestLimitedPermissions checks that a user with few permissions cannot read more than these allow with any request.
func TestLimitedPermissions(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t)
	w := newHTTPClient(t, c)
	w.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `{"metadata":{"name":"one"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["mine"],"verbs":["get","list","watch"]}]}`)
	w.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"metadata":{"name":"one"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"one"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
	eve := newHTTPClient(t, c, impersonate("eve"))
	const maps = "/api/v1/namespaces/default/configmaps"
	st := eve.status(403, "GET", maps, "")
	if want := `configmaps is forbidden: User "eve" cannot list resource "configmaps" in API group "" in the namespace "default"`; st.Message != want {
		t.Errorf("message %q, want %q", st.Message, want)
	}
	eve.must(200, "GET", maps+"?fieldSelector=metadata.name=mine", "")
	eve.status(404, "GET", maps+"/mine", "") // which does not exist yet
	eve.status(403, "GET", maps+"/other", "")
	eve.status(403, "GET", maps+"?watch=1", "")
	eve.status(403, "GET", maps+"?fieldSelector=metadata.name=other", "")
	eve.status(403, "GET", "/api/v1/watch/namespaces/default/configmaps", "")
	eve.status(403, "GET", "/api/v1/watch/namespaces/default/configmaps/other", "")
	eve.status(403, "GET", "/api/v1/watch/namespaces/default/configmaps/mine?fieldSelector=metadata.name=other", "")
	w.must(201, "POST", maps, `{"metadata":{"name":"mine"}}`)
	w.must(201, "POST", maps, `{"metadata":{"name":"other"}}`)
	if code, text := eve.do("GET", "/api/v1/watch/namespaces/default/configmaps/mine?timeoutSeconds=1", ""); code != 200 ||
		!strings.Contains(text, `"name":"mine"`) || strings.Contains(text, `"name":"other"`) {
		t.Errorf("a watch of one object: %d %s", code, text)
	}
	eve.status(403, "GET", "/api/v1/configmaps", "")
	eve.status(403, "GET", "/api/v1/nodes", "")
	eve.status(403, "GET", "/apis/example.com/v1/things", "")
	eve.status(403, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", `{"metadata":{"name":"two"}}`)
}

// TestUnauthenticatedClients checks that a wrong credential is refused; without one, only health, version and the files of the
// dashboard are served.
func TestUnauthenticatedClients(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t)
	withoutCredentials := newHTTPClient(t, c, func(r *rest.Config) { r.CertData, r.KeyData, r.CertFile, r.KeyFile = nil, nil, "", "" })
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 200, "/version": 200, "/api": 401,
		"/api/v1/namespaces": 401,
		"/metrics":           401, "/openapi/v2": 401, "/debug/pprof/": 401, "/": 401,
		"/dashboard/": 200, "/dashboard/app.js": 200, "/dashboard/none": 404, "/dashboards": 401,
		"/dashboard/../api/v1/namespaces": 404, "/dashboard/%2e%2e/metrics": 404} {
		if code, text := withoutCredentials.do("GET", path, ""); code != want {
			t.Errorf("%s: %d, want %d: %.100s", path, code, want, text)
		}
	}
	withoutCredentials.status(401, "POST", "/dashboard/", "")
	withoutCredentials.status(401, "GET", "/dashboard/", "", "Authorization: Bearer nonsense")
	withoutCredentials.status(401, "GET", "/healthz", "", "Authorization: Bearer nonsense")
	withoutCredentials.status(401, "GET", "/api/v1/namespaces", "", "X-Remote-User: admin", "X-Remote-Group: system:masters")
}

// useOwnConnections makes a client not share connections with other clients that have the same credentials.
func useOwnConnections(c *rest.Config) { c.Dial = (&net.Dialer{}).DialContext }

// TestRequestFlood checks that the many requests of one user are refused with 429 and do not keep other users out.
func TestRequestFlood(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t)
	admin := newHTTPClient(t, c)
	admin.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"flood"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"flood"}]}`)
	// There are eight connections, each with as many requests as the server allows. With more requests, a client would
	// open a connection for every further one, and on a slow machine the server would rightly give up on some of two
	// thousand TLS handshakes.
	var floods []*httpClient
	for range 8 {
		flood := newHTTPClient(t, c, impersonate("flood"), useOwnConnections)
		flood.must(200, "GET", "/api/v1/namespaces/default", "")
		floods = append(floods, flood)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 2000 {
		flood := floods[i%len(floods)]
		wg.Go(func() {
			code, _ := flood.do("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "")
			mu.Lock()
			codes[code]++
			mu.Unlock()
		})
	}
	if code, text := admin.do("GET", "/api/v1/namespaces", ""); code != 200 {
		t.Errorf("the administrator is kept out: %d %s", code, text)
	}
	wg.Wait()
	for code := range codes {
		if code != 200 && code != 429 {
			t.Errorf("codes %v", codes)
		}
	}
	if codes[200] == 0 {
		t.Errorf("nothing was served: %v", codes)
	}
}

// TestSilentConnections checks that a connection on which the client sends nothing is closed.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t)
	host := strings.TrimPrefix(c.Config.Host, "https://")
	silent, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	slow, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	if _, err := io.WriteString(slow, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]net.Conn{"no ClientHello": silent, "slow headers": slow} {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: still open after a minute", name)
		}
	}
}

// TestMetricsAreBounded checks that requests for resources that do not exist add nothing to the metrics.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	c := proatest.Start(t)
	admin := newHTTPClient(t, c)
	withoutCredentials := newHTTPClient(t, c, func(r *rest.Config) { r.CertData, r.KeyData, r.CertFile, r.KeyFile = nil, nil, "", "" })
	for i := range 20 {
		withoutCredentials.do("GET", fmt.Sprintf("/apis/g%d.example.com/v%d/r%d/n/s%d", i, i, i, i), "")
		withoutCredentials.do(fmt.Sprintf("M%d", i), "/api/v1/pods", "")
		admin.do("GET", fmt.Sprintf("/api/v1/namespaces/default/pods/x/sub%d", i), "")
	}
	_, text := admin.do("GET", "/metrics", "")
	for _, bad := range []string{"example.com", `"r7"`, `verb="M`, "sub7"} {
		if strings.Contains(text, bad) {
			t.Errorf("the metrics name %s, which only a client has sent", bad)
		}
	}
	if !strings.Contains(text, `apiserver_request_total{code="401"`) {
		t.Error("refused requests are not counted")
	}
}
