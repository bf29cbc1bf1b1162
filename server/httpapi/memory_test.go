package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/fairqueue"
	"proa.dev/server/healthz"
	"proa.dev/server/memorybudget"
	"proa.dev/server/schema"
	"proa.dev/server/state"
	memorystore "proa.dev/store/memory"
)

// headerAuthenticator authenticates a client as the user and the group in a header: "NAME GROUP".
type headerAuthenticator struct{}

func (headerAuthenticator) Request(r *http.Request) (user.Info, error) {
	name, group, _ := strings.Cut(r.Header.Get("X-Test-User"), " ")
	if name == "" {
		return nil, errors.New("no user")
	}
	return &user.DefaultInfo{Name: name, Groups: []string{"system:authenticated", group}}, nil
}

// newMemoryRig returns a rig over a store in memory, for tests in a synctest bubble.
func newMemoryRig(t testing.TB, seats int) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	db := memorystore.New(memorystore.Config{})
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	defs := kinds.All()
	st := state.New(context.WithoutCancel(t.Context()), codec.New(scheme), db, defs, log)
	t.Cleanup(func() {
		st.Close()
		_ = db.Close()
	})
	v := state.NewVersions(scheme, defs)
	s := server.New(server.Config{
		State: st, Authz: allowAll{}, Owner: schema.New(scheme, v, v), Recorder: hop.NewRecorder(100), Log: log, Fair: fairqueue.New(seats),
	})
	h := New(Config{Server: s, Authn: headerAuthenticator{}, Paths: (&healthz.Endpoints{Version: &apiversion.Info{Major: "1"}}).Handler()})
	return &rig{TB: t, Server: s, Handler: h, who: &user.DefaultInfo{Name: "tester"}}
}

// createConfigMaps creates n ConfigMaps of a size.
func (r *rig) createConfigMaps(n, size int) {
	r.Helper()
	text := strings.Repeat("x", size)
	for i := range n {
		m := configMap(fmt.Sprintf("m%04d", i))
		m.Data["a"] = text
		r.create(configMapsResource(), m)
	}
}

// stallingWriter is the response writer of a client that reads up to limit bytes, and then nothing until it is disconnected.
type stallingWriter struct {
	header http.Header
	limit  int // how much it takes; -1 for all

	mu             sync.Mutex // guards what follows
	code           int
	got            bytes.Buffer
	largestWrite   int // write
	disconnected   chan struct{}
	isDisconnected bool
}

func newStallingWriter(window int) *stallingWriter {
	return &stallingWriter{header: http.Header{}, limit: window, disconnected: make(chan struct{})}
}

func (s *stallingWriter) Header() http.Header { return s.header }

func (s *stallingWriter) WriteHeader(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = code
}

func (s *stallingWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.largestWrite = max(s.largestWrite, len(p))
	if s.isDisconnected {
		s.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
	if s.limit < 0 || s.got.Len()+len(p) <= s.limit {
		defer s.mu.Unlock()
		return s.got.Write(p)
	}
	s.mu.Unlock()
	<-s.disconnected
	return 0, os.ErrDeadlineExceeded
}

func (s *stallingWriter) Flush() {}

func (s *stallingWriter) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isDisconnected && !at.IsZero() && at.Before(time.Now()) {
		s.isDisconnected = true
		close(s.disconnected)
	}
	return nil
}

func (s *stallingWriter) SetReadDeadline(time.Time) error { return nil }

// hasStarted reports whether a part of the response was written, or a write waits.
func (s *stallingWriter) hasStarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.largestWrite > 0
}

// send serves one request, and reports whether the response was aborted.
func (r *rig) send(w http.ResponseWriter, who, method, path string, body io.Reader, headers ...string) (aborted bool) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			aborted = true
		}
	}()
	req := httptest.NewRequestWithContext(r.Context(), method, path, body)
	req.Header.Set("X-Test-User", who)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	r.ServeHTTP(w, req)
	return false
}

// allocatedBytes returns how many bytes f allocates.
func allocatedBytes(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

const configMapsPath = "/api/v1/namespaces/ns/configmaps"

// TestExpensiveYAMLIsRefused checks that bodies that would take much more memory than their size are refused before they
// are decoded. Each of these is at most 3 MB and took 600 MB or more.
func TestExpensiveYAMLIsRefused(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(configMapsResource(), configMap("x"))
	yaml := strings.Repeat("- a:\n", maxBody/5)
	containers := `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + strings.Repeat("{},", maxBody/3-50) + `{}]}}`
	proto := "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod" + "\x12\xc5\x8c\xad\x01\x12\xc0\x8c\xad\x01" + strings.Repeat("\x12\x00", 2836032/2)
	for name, v := range map[string][4]string{
		"create":            {"POST", configMapsPath, "application/yaml", yaml},
		"update":            {"PUT", configMapsPath + "/x", "application/yaml", yaml},
		"apply":             {"PATCH", configMapsPath + "/x?fieldManager=m", "application/apply-patch+yaml", yaml},
		"delete":            {"DELETE", configMapsPath + "/x", "application/yaml", yaml},
		"delete collection": {"DELETE", configMapsPath, "application/yaml", yaml},
		"json":              {"POST", "/api/v1/namespaces/ns/pods", "application/json", containers},
		"json as yaml":      {"POST", "/api/v1/namespaces/ns/pods", "application/yaml", containers},
		"merge patch":       {"PATCH", "/api/v1/namespaces/ns/pods/x", "application/merge-patch+json", containers},
		"protobuf":          {"POST", "/api/v1/namespaces/ns/pods", "application/vnd.kubernetes.protobuf", proto},
	} {
		w := httptest.NewRecorder()
		body := strings.NewReader(v[3])
		used := allocatedBytes(func() { r.send(w, "eve", v[0], v[1], body, "Content-Type: "+v[2]) })
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "decoding the body would take") {
			t.Errorf("%s: %d %.300s", name, w.Code, w.Body)
		}
		if used > 16<<20 {
			t.Errorf("%s: %d MB were allocated for a body of %d MB that is refused", name, used>>20, len(v[3])>>20)
		}
	}
}

// TestLargeOrdinaryYAMLIsAccepted checks that a large body of ordinary objects is accepted, as JSON and as YAML.
func TestLargeOrdinaryYAMLIsAccepted(t *testing.T) {
	r := newMemoryRig(t, 100)
	var text, crd strings.Builder
	text.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\ndata:\n  a: |\n")
	for text.Len() < 1000<<10 {
		text.WriteString("    # a line of a config file, as people write them: {\"with\": \"some\", 'signs': [1, 2]}\n")
	}
	crd.WriteString("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\nspec:\n  group: example.com\n" +
		"  names: {kind: Thing, plural: things}\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n")
	for i := range 13000 {
		fmt.Fprintf(&crd, "          field%d:\n            description: what a field is for, and how it is used\n            type: string\n", i)
	}
	const yaml = "Content-Type: application/yaml"
	for name, v := range map[string][2]string{
		"ConfigMap": {configMapsPath, text.String()}, "CRD": {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd.String()},
	} {
		w := httptest.NewRecorder()
		if r.send(w, "alice", "POST", v[0], strings.NewReader(v[1]), yaml); w.Code != http.StatusCreated {
			t.Errorf("a %s of %d bytes: %d %.300s", name, len(v[1]), w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	if r.send(w, "alice", "PATCH", configMapsPath+"/text?fieldManager=m&force=1", strings.NewReader(text.String()),
		"Content-Type: application/apply-patch+yaml"); w.Code != http.StatusOK {
		t.Errorf("applied: %d %.300s", w.Code, w.Body)
	}
}

// TestDecodingOfOneUserIsBounded checks that expensive bodies of one user are decoded one after the other, those of other users
// meanwhile.
func TestDecodingOfOneUserIsBounded(t *testing.T) {
	r := newMemoryRig(t, 100)
	body := "apiVersion: v1\nkind: ConfigMap\nx:\n" + strings.Repeat("- a:\n", 20000)
	cost := codec.Cost(codec.YAML, []byte(body))
	r.memory.decoding = memorybudget.New(5 * cost) // one user may hold a quarter of it: one body
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			w := httptest.NewRecorder()
			r.send(w, fmt.Sprint("user", i%3), "POST", configMapsPath, strings.NewReader(body), "Content-Type: application/yaml")
			if w.Code != http.StatusUnprocessableEntity { // the object has no name
				t.Errorf("%d %.300s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	now, peak := r.memory.decoding.Held()
	if now != 0 || peak > 3*cost || peak == 0 {
		t.Errorf("%d are held, at most %d were; one body costs %d, and there are three users", now, peak, cost)
	}
	if now, _ := r.memory.bodies.Held(); now != 0 {
		t.Errorf("%d are held for bodies", now)
	}
}

// TestUnsentBodiesAreBounded checks that a client that announces large bodies and does not send them holds a bounded amount
// of memory. Its further requests are refused, and requests of other users are served.
func TestUnsentBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.memory.bodies = memorybudget.New(40 * maxBody)
		var wg sync.WaitGroup
		codes := make(chan int, 100)
		ctx, stop := context.WithCancel(t.Context())
		for range 100 {
			pipe, writer := io.Pipe()
			context.AfterFunc(ctx, func() { _ = writer.Close() })
			wg.Go(func() {
				w := httptest.NewRecorder()
				r.send(w, "eve", "POST", configMapsPath, pipe)
				codes <- w.Code
			})
		}
		time.Sleep(memorybudget.MaxWait + time.Second)
		if len(codes) != 90 {
			t.Errorf("%d requests were answered, 90 wait in vain", len(codes))
		}
		for len(codes) > 0 {
			if code := <-codes; code != http.StatusTooManyRequests {
				t.Errorf("answered with %d", code)
			}
		}
		w := httptest.NewRecorder()
		if r.send(w, "alice", "POST", configMapsPath,
			strings.NewReader(`{"metadata":{"name":"x"}}`+strings.Repeat(" ", 100000))); w.Code != http.StatusCreated {
			t.Errorf("another user: %d %s", w.Code, w.Body)
		}
		stop()
		wg.Wait()
		if now, peak := r.memory.bodies.Held(); now != 0 || peak > 11*maxBody {
			t.Errorf("%d are held, at most %d were", now, peak)
		}
	})
}
