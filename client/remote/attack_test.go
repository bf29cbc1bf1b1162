package remote

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// hostileServer answers lists and watches of an aggregated API server.
type hostileServer struct {
	list  string
	watch func() io.Reader
	lists atomic.Int64
	read  atomic.Int64 // bytes of watches
}

func (s *hostileServer) RoundTrip(req *http.Request) (*http.Response, error) {
	body := io.Reader(strings.NewReader(s.list))
	if req.URL.Query().Get("watch") != "" {
		body = io.TeeReader(s.watch(), counter{&s.read})
	} else {
		s.lists.Add(1)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: &bodyOf{body, req}}, nil
}

// bodyOf ends with its request.
type bodyOf struct {
	io.Reader
	req *http.Request
}

func (b *bodyOf) Read(p []byte) (int, error) {
	if err := b.req.Context().Err(); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

func (b *bodyOf) Close() error { return nil }

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) { c.n.Add(int64(len(p))); return len(p), nil }

// repeat reads the texts that a function returns, without end.
type repeat struct {
	next func(i int) string
	i    int
	rest string
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.rest == "" {
		r.rest, r.i = r.next(r.i), r.i+1
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

const emptyList = `{"metadata":{"resourceVersion":"1"},"items":[]}`

func newHostileClient(t *testing.T, s *hostileServer) *Client {
	def := &kind.Def{
		Traits: kind.Traits{GroupVersionKind: schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Frog"}, Plural: "frogs",
			Verbs: []string{"list", "watch"}},
		JSONOnly: true, New: func() kind.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		Load: func([]byte) (kind.Object, error) { return nil, nil },
	}
	c, err := New(t.Context(), Config{URL: "https://elsewhere", Transport: s, Resources: []*kind.Def{def}, MaxList: 64 << 10,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var frogs = schema.GroupResource{Group: "g.example.com", Resource: "frogs"}

// TestHostileWatches follows servers whose watches send one endless event, or new objects without end.
func TestHostileWatches(t *testing.T) {
	t.Run("an endless event", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &hostileServer{list: emptyList, watch: func() io.Reader {
				return io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{"a":"`),
					io.LimitReader(&repeat{next: func(int) string { return strings.Repeat("x", 1<<16) }}, 4*maxObject))
			}}
			c := newHostileClient(t, s)
			defer c.Close()
			if _, err := c.View(t.Context(), frogs); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until the watch has failed, and pauses
			if got := s.read.Load(); got < maxObject || got > maxObject+1<<20 {
				t.Errorf("%d bytes of one event were read", got)
			}
		})
	})
	t.Run("endless objects", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &hostileServer{list: emptyList}
			s.watch = func() io.Reader {
				if s.lists.Load() > 3 {
					return blocked{}
				}
				return io.LimitReader(&repeat{next: func(i int) string {
					return fmt.Sprintf(`{"type":"ADDED","object":{"apiVersion":"g.example.com/v1","kind":"Frog","metadata":{"name":"f%d","resourceVersion":"%d"}}}`, i, i+2)
				}}, 1<<20)
			}
			c := newHostileClient(t, s)
			defer c.Close()
			if _, err := c.View(t.Context(), frogs); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got, most := s.read.Load(), int64(3*(64<<10+64<<10)); s.lists.Load() != 4 || got > most {
				t.Errorf("%d lists, %d bytes of events were read, want at most %d", s.lists.Load(), got, most)
			}
		})
	})
}

// blocked is the body of a watch without events.
type blocked struct{}

func (blocked) Read([]byte) (int, error) { return 0, io.EOF }

// TestHostileLists reads a list that is short, and takes a lot of memory.
func TestHostileLists(t *testing.T) {
	s := &hostileServer{list: `{"metadata":{"resourceVersion":"1"},"items":[{}` + strings.Repeat(`,{}`, 8<<10) + `]}`}
	c := newHostileClient(t, s)
	defer c.Close()
	if _, err := c.View(t.Context(), frogs); err == nil || !strings.Contains(err.Error(), errTooLong.Error()) {
		t.Error(err)
	}
}
