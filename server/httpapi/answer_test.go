package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/collection"
	"proa.dev/server/encode"
	"proa.dev/server/memorybudget"
	"proa.dev/server/responsewriter"
	"proa.dev/watch"
)

// The limits of package responsewriter: for how long a client may take nothing of its answer, and how often that is
// checked.
const (
	maximumStall   = 30 * time.Second
	contestedStall = 5 * time.Second
	stallCheck     = time.Second
)

// TestListsAreSentInPieces checks that no list is held in memory as a whole, in any format. A short list has a
// Content-Length.
func TestListsAreSentInPieces(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.createConfigMaps(80, 50<<10)
	for name, headers := range map[string][]string{
		"json": nil, "pretty": {"User-Agent: curl/8"}, "gzip": {"Accept-Encoding: gzip"},
		"yaml":  {"Accept: application/yaml"},
		"proto": {"Accept: application/vnd.kubernetes.protobuf"},
		"table": {"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"},
	} {
		path := configMapsPath
		if name == "table" {
			path += "?includeObject=Object"
		}
		w := newStallingWriter(-1)
		if r.send(w, "alice", "GET", path, nil, headers...) || w.code != http.StatusOK {
			t.Errorf("%s: %d %.300s", name, w.code, w.got.String())
		}
		text := w.got.Bytes()
		if name == "gzip" {
			z, err := gzip.NewReader(&w.got)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = io.ReadAll(z); err != nil || w.header.Get("Content-Encoding") != "gzip" ||
				w.header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: %v %v", name, err, w.header)
			}
		}
		if len(text) < 80*50<<10 || bytes.Count(text, []byte("m0079")) == 0 {
			t.Errorf("%s: %d bytes are not the whole list", name, len(text))
		}
		if w.largestWrite > responsewriter.PieceSize {
			t.Errorf("%s: %d bytes were written at once", name, w.largestWrite)
		}
		if name == "json" && !json.Valid(text) {
			t.Errorf("%s is not sound", name)
		}
	}
	for path, length := range map[string]bool{configMapsPath + "?limit=1": true, configMapsPath + "?limit=2": true,
		configMapsPath + "/m0000": true,
		configMapsPath:            false} {
		w := newStallingWriter(-1)
		r.send(w, "alice", "GET", path, nil)
		if got := w.header.Get("Content-Length"); (got == fmt.Sprint(w.got.Len())) != length || !length && got != "" {
			t.Errorf("%s: %d bytes, Content-Length %q", path, w.got.Len(), got)
		}
	}
}

// TestUnreadListsAreBounded checks that a user whose clients read nothing holds one piece for each of a bounded number of
// lists, however long these are, also when they are exempt from seats. Further requests of the user are refused; those
// of others are served.
func TestUnreadListsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(40, 50<<10)
		r.memory.answers = memorybudget.New(4 * 20 * responsewriter.PieceSize)
		r.send(newStallingWriter(-1), "warm", "GET", configMapsPath, nil)
		var wg sync.WaitGroup
		var sockets []*stallingWriter
		for range 10000 {
			w := newStallingWriter(0)
			sockets = append(sockets, w)
			wg.Go(func() { r.send(w, "root system:masters", "GET", configMapsPath, nil) })
		}
		synctest.Wait()
		sending, busy := 0, 0
		for _, w := range sockets {
			w.mu.Lock()
			if w.largestWrite >= responsewriter.PieceSize {
				sending++
			}
			if w.code == http.StatusTooManyRequests {
				busy++
				if w.header.Get("Retry-After") != "1" {
					t.Error("no Retry-After")
				}
			}
			w.mu.Unlock()
		}
		// A thousand of the other requests wait. Those that are refused may not get their response out, because the
		// clients read nothing.
		maximum := 20 * responsewriter.PieceSize / responsewriter.MinRequestMemory
		if sending > 20 || sending == 0 || busy > maximum || busy == 0 {
			t.Errorf("%d lists are being sent, %d were refused", sending, busy)
		}
		if w := newStallingWriter(-1); r.send(w, "alice", "GET", configMapsPath, nil) || w.code != http.StatusOK {
			t.Errorf("another user: %d", w.code)
		}
		wg.Wait() // all are disconnected in the end
		for _, w := range sockets {
			if w.largestWrite >= responsewriter.PieceSize && !w.isDisconnected {
				t.Error("an unread response was not aborted")
			}
		}
		if now, peak := r.memory.answers.Held(); now != 0 || peak > 2*20*responsewriter.PieceSize+responsewriter.PieceSize {
			t.Errorf("%d are held, at most %d were", now, peak)
		}
	})
}

// TestUnreadSmallResponsesHoldNoSeat checks that clients that read nothing of a small answer, of a resource or another path,
// keep no seat.
func TestUnreadSmallResponsesHoldNoSeat(t *testing.T) {
	for name, path := range map[string]string{"path": "/version", "discovery": "/api", "object": configMapsPath + "/m0000",
		"list": configMapsPath + "?limit=1", "watch": configMapsPath + "?watch=1", "none": configMapsPath + "/none"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemoryRig(t, 10)
				r.createConfigMaps(2, 100)
				var wg sync.WaitGroup
				var sockets []*stallingWriter
				for range 500 { // two connections of 250 streams
					w := newStallingWriter(0)
					sockets = append(sockets, w)
					wg.Go(func() { r.send(w, "anybody", "GET", path, nil) })
				}
				synctest.Wait()
				start, w := time.Now(), newStallingWriter(-1)
				if r.send(w, "alice", "GET", path[:min(len(path), len(configMapsPath))],
					nil); w.code != http.StatusOK || time.Since(start) != 0 {
					t.Errorf("%d after %v", w.code, time.Since(start))
				}
				for _, w := range sockets {
					_ = w.SetWriteDeadline(time.Unix(1, 0))
				}
				wg.Wait()
			})
		})
	}
}

// TestUnreadLongListsReleaseTheirSeat checks that a long list keeps its seat while it is sent, so there are no more of them
// than seats, and some seats are left to other users. When requests of the same user wait for a seat, a client that
// reads nothing is disconnected.
func TestUnreadLongListsReleaseTheirSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(20, 50<<10)
		var wg sync.WaitGroup
		var sockets []*stallingWriter
		for range 200 {
			w := newStallingWriter(0)
			sockets = append(sockets, w)
			wg.Go(func() { r.send(w, "anybody", "GET", configMapsPath, nil) })
		}
		synctest.Wait()
		countStarted := func() (n int) {
			for _, w := range sockets {
				if w.hasStarted() {
					n++
				}
			}
			return n
		}
		sending := countStarted()
		if sending == 0 || sending > 100 {
			t.Errorf("%d lists are being sent with 100 seats", sending)
		}
		start, w := time.Now(), newStallingWriter(-1)
		if r.send(w, "alice", "GET", configMapsPath, nil); w.code != http.StatusOK || time.Since(start) != 0 {
			t.Errorf("%d after %v", w.code, time.Since(start))
		}
		time.Sleep(contestedStall + 2*stallCheck)
		synctest.Wait()
		if now := countStarted(); now <= sending {
			t.Errorf("%d lists were being sent, and no other one after that", sending)
		}
		for _, w := range sockets { // the refused clients do not read their response either
			_ = w.SetWriteDeadline(time.Unix(1, 0))
		}
		wg.Wait()
	})
}

// TestSlowClientsAreNotDisconnected checks that a client that reads its list slowly gets all of it if no request waits.
func TestSlowClientsAreNotDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(20, 50<<10)
		w := &slowWriter{stallingWriter: newStallingWriter(-1)}
		if r.send(w, "alice", "GET", configMapsPath, nil) || w.code != http.StatusOK || !json.Valid(w.got.Bytes()) {
			t.Errorf("%d, %d bytes", w.code, w.got.Len())
		}
	})
}

// slowWriter is the response writer of a client that takes twenty seconds to read a piece.
type slowWriter struct{ *stallingWriter }

func (s *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Second)
	return s.stallingWriter.Write(p)
}

// TestSlowServerDisconnectsNoClient checks that clients that read everything are not disconnected when the server is so busy
// that sending a piece takes long, although others wait for seats.
func TestSlowServerDisconnectsNoClient(t *testing.T) {
	for _, stalled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newMemoryRig(t, 100)
			r.createConfigMaps(5, 50<<10)
			var wg sync.WaitGroup
			var sockets []*busyServerWriter
			for range 200 {
				w := &busyServerWriter{slowWriter: &slowWriter{stallingWriter: newStallingWriter(-1)}, stalledByClient: stalled}
				sockets = append(sockets, w)
				wg.Go(func() { r.send(w, "alice", "GET", configMapsPath, nil) })
			}
			wg.Wait()
			whole, cut := 0, 0
			for _, w := range sockets {
				if w.isDisconnected {
					cut++
				} else if w.code == http.StatusOK && json.Valid(w.got.Bytes()) {
					whole++
				}
			}
			if (whole > 0) == stalled || (cut > 0) != stalled {
				t.Errorf("clients stall %v: %d lists were sent, %d clients cut off", stalled, whole, cut)
			}
		})
	}
}

// busyServerWriter is a response writer that takes twenty seconds for a piece, and reports whether the client is the reason.
type busyServerWriter struct {
	*slowWriter
	stalledByClient bool
}

func (s *busyServerWriter) StalledByClient() bool { return s.stalledByClient }

// TestInitialEventsAreSentInPieces checks that the present objects with which a watch begins are sent in pieces that the client must take
// in time. After that the client may take its time.
func TestInitialEventsAreSentInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(100, 50<<10)
		const path = configMapsPath + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=600"
		unread := newStallingWriter(0)
		start := time.Now()
		used := allocatedBytes(func() { r.send(unread, "anybody", "GET", path, nil) })
		if time.Since(start) < maximumStall || time.Since(start) > maximumStall+2*stallCheck {
			t.Errorf("a watch whose initial events were not read ended after %v", time.Since(start))
		}
		if used > 12<<20 { // the cost of the first piece of the state
			t.Errorf("%d bytes were allocated for a state of 5 MB that was not read", used)
		}
		if unread.largestWrite > responsewriter.PieceSize {
			t.Errorf("%d bytes were written at once", unread.largestWrite)
		}
		var wg sync.WaitGroup
		w := newStallingWriter(-1)
		wg.Go(func() { r.send(w, "alice", "GET", path, nil) })
		synctest.Wait()
		w.mu.Lock()
		if events := bytes.Count(w.got.Bytes(), []byte(`{"type":"ADDED"`)); events != 100 ||
			!bytes.Contains(w.got.Bytes(), []byte("initial-events-end")) {
			t.Errorf("%d events of 100, and the bookmark", events)
		}
		w.limit = w.got.Len() // and now it reads no more
		w.mu.Unlock()
		if now, _ := r.memory.answers.Held(); now != 0 {
			t.Errorf("an open watch holds %d", now)
		}
		r.create(configMapsResource(), configMap("more"))
		time.Sleep(2 * maximumStall)
		if w.isDisconnected {
			t.Error("a quiet client of a watch was cut off")
		}
		_ = w.SetWriteDeadline(time.Unix(1, 0))
		wg.Wait()
	})
}

// unencodable is a ConfigMap whose encoding fails.
type unencodable struct{ *corev1.ConfigMap }

func (unencodable) MarshalJSON() ([]byte, error) { return nil, errors.New("it cannot be encoded") }

// TestListsThatFailAreAborted checks that an item that cannot be encoded is answered with a Status when nothing was sent yet;
// later the answer is aborted, so that no client takes it for complete.
func TestListsThatFailAreAborted(t *testing.T) {
	h := New(Config{Server: newRig(t).Server})
	s := h.Server
	def := s.State.Def(configMapsResource())
	for _, headers := range []string{"", "gzip"} {
		for before, want := range map[int]bool{1: false, 10: true} {
			l := &collection.List{}
			for range before {
				m := configMap("x")
				m.Data["a"] = strings.Repeat("x", 50<<10)
				l.Items = append(l.Items, watch.NewEntry("", m, 0))
			}
			l.Items = append(l.Items, watch.NewEntry("", unencodable{configMap("y")}, 0))
			w := newStallingWriter(-1)
			req := httptest.NewRequestWithContext(t.Context(), "GET", configMapsPath, nil)
			req.Header.Set("Accept-Encoding", headers)
			aborted := func() (aborted bool) {
				defer func() { aborted = recover() != nil }()
				h.writeAnswer(&responsewriter.Writer{ResponseWriter: w}, req, &server.Response{Code: http.StatusOK, List: l},
					&encode.Encoder{Codec: s.State.Codec, Def: def, Format: encode.Format{Media: codec.JSON}}, nil)
				return false
			}()
			if aborted != want || !want && w.code != http.StatusInternalServerError {
				t.Errorf("after %d items: aborted %v, %d", before, aborted, w.code)
			}
		}
	}
}

// TestPastObjectsCountAsMemory checks that objects that are read from the store for one list count as memory of its user.
func TestPastObjectsCountAsMemory(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.createConfigMaps(40, 50<<10)
	cache := r.State.Cache(r.State.Def(configMapsResource()))
	if err := cache.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", configMapsPath, cache.Rev())
	w := newStallingWriter(-1)
	if r.send(w, "alice", "GET", path, nil); w.code != http.StatusOK || !json.Valid(w.got.Bytes()) {
		t.Fatalf("%d %.200s", w.code, w.got.String())
	}
	if _, peak := r.memory.answers.Held(); peak < 40*50<<10 {
		t.Errorf("at most %d were held for 2 MB of objects", peak)
	}
	r.memory.answers = memorybudget.New(8 << 20)
	held, _ := r.memory.answers.Force("alice", responsewriter.PieceSize)
	w = newStallingWriter(-1)
	var last Observation
	r.Observe = func(o Observation) { last = o }
	if r.send(w, "alice", "GET", path, nil); w.code != http.StatusTooManyRequests || !last.Terminated {
		t.Errorf("beyond its share: %d %+v", w.code, last)
	}
	held.Release()
}

// TestDiscoveryCountsAsMemory checks that the aggregated discovery document is made for each request and counts as memory of its user.
func TestDiscoveryCountsAsMemory(t *testing.T) {
	r := newMemoryRig(t, 100)
	const all = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	w := newStallingWriter(-1)
	if r.send(w, "alice", "GET", "/apis", nil, all); w.code != http.StatusOK {
		t.Fatalf("%d %.200s", w.code, w.got.String())
	}
	if _, peak := r.memory.answers.Held(); peak < int64(w.got.Len()) {
		t.Errorf("at most %d were held for %d bytes", peak, w.got.Len())
	}
	r.memory.answers = memorybudget.New(4 * 2 * responsewriter.PieceSize)
	held, _ := r.memory.answers.Force("alice", responsewriter.PieceSize)
	defer held.Release()
	w = newStallingWriter(-1)
	if r.send(w, "alice", "GET", "/apis", nil, all); w.code != http.StatusTooManyRequests || w.header.Get("Etag") != "" {
		t.Errorf("beyond its share: %d %v", w.code, w.header)
	}
}

// TestInvalidTimeoutIsRefusedBeforeAuthentication checks that an invalid timeout of a request that is not long-running is refused
// before the client is authenticated, as upstream does.
func TestInvalidTimeoutIsRefusedBeforeAuthentication(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(configMapsResource(), configMap("x"))
	const message = `invalid timeout specified in the request URL - time: invalid duration \"invalid\"`
	for path, want := range map[string]int{
		"/?timeout=invalid": 400, "/version?timeout=invalid": 400, "/healthz?timeout=invalid": 400, "/api?timeout=invalid": 400,
		"/none?timeout=invalid":             400,
		configMapsPath + "?timeout=invalid": 400, configMapsPath + "/x?timeout=invalid": 400,
		"/apis/none.example.com/v1/things?timeout=invalid": 400,
		"/?timeout=1s": 200, "/?timeout=": 200, "/?timeout=0s": 200, "/?timeout=-1s": 200, "/?timeout=9999h": 200,
		configMapsPath + "/x?timeout=0s": 200, configMapsPath + "/x?timeout=-1s": 200, configMapsPath + "?timeout=9999h": 200,
		configMapsPath + "?watch=1&timeoutSeconds=1&timeout=invalid": 200,
	} {
		for _, who := range []string{"alice", ""} {
			w := httptest.NewRecorder()
			r.send(w, who, "GET", path, nil)
			code := want
			if who == "" && want == 200 {
				code = 401
			}
			if w.Code != code || code == 400 && !strings.Contains(w.Body.String(), message) {
				t.Errorf("%q %s: %d, want %d: %.300s", who, path, w.Code, code, w.Body)
			}
		}
	}
}

// TestFailedWebSocketHandshakeClosesWatch checks that a watch whose WebSocket handshake fails is closed and does not count as open.
func TestFailedWebSocketHandshakeClosesWatch(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(configMapsResource(), configMap("x"))
	for range 3 {
		r.send(newStallingWriter(-1), "eve", "GET", configMapsPath+"?watch=1", nil, "Upgrade: websocket", "Connection: Upgrade")
	}
	if open := r.OpenWatches(); open != 0 {
		t.Errorf("%d watches are open", open)
	}
}

// TestCompletedWritesAreNotRefused checks that when there is no memory for a large response, a client is told to retry only if
// nothing was written. For a completed write it gets the response, or the connection ends.
func TestCompletedWritesAreNotRefused(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.createConfigMaps(1, 200<<10)
	r.memory.answers = memorybudget.New(4 * 256 << 10)
	held, _ := r.memory.answers.Force("alice", 128<<10)
	w := newStallingWriter(-1)
	if r.send(w, "alice", "GET", configMapsPath+"/m0000", nil); w.code != http.StatusTooManyRequests {
		t.Errorf("an object is read: %d", w.code)
	}
	body := func(size int) io.Reader {
		return strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":"%s"}}`, strings.Repeat("x", size)))
	}
	w = newStallingWriter(-1)
	if r.send(w, "alice", "POST", configMapsPath, body(200<<10), "Content-Type: application/json"); w.code != http.StatusCreated ||
		!json.Valid(w.got.Bytes()) {
		t.Errorf("an object is created: %d %.200s", w.code, w.got.String())
	}
	w = newStallingWriter(-1)
	aborted := r.send(w, "alice", "PUT", configMapsPath+"/large", body(400<<10), "Content-Type: application/json")
	if !aborted || w.code != 0 {
		t.Errorf("an object is written, and there is no memory at all: aborted %v, %d", aborted, w.code)
	}
	held.Release()
	if now, _ := r.memory.answers.Held(); now != 0 {
		t.Errorf("%d are held", now)
	}
}

// TestExemptRequestsDoNotWaitForMemory checks that administrators and health probes are answered while other users hold all memory
// and very many requests wait for it.
func TestExemptRequestsDoNotWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(1, 100)
		r.memory.answers = memorybudget.New(32 * responsewriter.PieceSize)
		ctx, stop := context.WithCancel(t.Context())
		for i := range 4 {
			lease, _ := r.memory.answers.Take(ctx, fmt.Sprint("holder", i), 8*responsewriter.PieceSize)
			defer lease.Release()
		}
		for i := range 100 {
			go func() { _, _ = r.memory.answers.Take(ctx, fmt.Sprint("waiter", i), responsewriter.PieceSize) }()
		}
		lease, _ := r.memory.answers.Force("anybody",
			16*responsewriter.PieceSize) // error responses that unauthenticated clients do not read
		defer lease.Release()
		synctest.Wait()
		for who, path := range map[string]string{"anybody": "/healthz", "root system:masters": configMapsPath + "/m0000",
			"root2 system:masters": configMapsPath} {
			start, w := time.Now(), newStallingWriter(-1)
			if r.send(w, who, "GET", path, nil); w.code > http.StatusOK || w.got.Len() == 0 || time.Since(start) != 0 {
				t.Errorf("%s %s: %d after %v", who, path, w.code, time.Since(start))
			}
		}
		w := newStallingWriter(-1)
		if r.send(w, "bob", "GET", configMapsPath+"/m0000", nil); w.code != http.StatusTooManyRequests {
			t.Errorf("a user who is not exempt: %d", w.code)
		}
		stop()
		synctest.Wait()
	})
}

// TestErrorResponsesCountAsMemory checks that every error that a client does not read counts as memory of its user, wherever the request
// was refused, and their number is bounded.
func TestErrorResponsesCountAsMemory(t *testing.T) {
	for name, send := range map[string][]string{
		"no credentials": {"", configMapsPath}, "timeout": {"eve", "/?timeout=invalid"}, "impersonation": {"eve", configMapsPath,
			"Impersonate-Group: g"},
		"a stream":                     {"eve", "/api/v1/namespaces/ns/pods/none/log"},
		"a stream of nothing":          {"eve", "/api/v1/namespaces/ns/nothing/none/log"},
		"a stream without credentials": {"", "/api/v1/namespaces/ns/pods/none/log"}, "an object": {"eve", configMapsPath + "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemoryRig(t, 100)
				r.createConfigMaps(1, 1)
				r.memory.answers = memorybudget.New(4 * 20 * responsewriter.PieceSize)
				var wg sync.WaitGroup
				var sockets []*stallingWriter
				for range 10000 {
					w := newStallingWriter(0)
					sockets = append(sockets, w)
					wg.Go(func() { r.send(w, send[0], "GET", send[1], nil, send[2:]...) })
					synctest.Wait()
				}
				sent := 0
				for _, w := range sockets {
					if w.hasStarted() {
						sent++
					}
				}
				if now, _ := r.memory.answers.Held(); sent == 0 || sent > 2*20*responsewriter.PieceSize/responsewriter.MinRequestMemory ||
					now < int64(sent)*responsewriter.MinRequestMemory {
					t.Errorf("%d refusals are being sent, %d bytes are held", sent, now)
				}
				for _, w := range sockets {
					_ = w.SetWriteDeadline(time.Unix(1, 0))
				}
				wg.Wait()
				if now, _ := r.memory.answers.Held(); now != 0 {
					t.Errorf("%d are held in the end", now)
				}
			})
		})
	}
}

// TestLargeErrorResponsesCountAsMemory checks that an error that quotes a large part of its request counts with its size.
func TestLargeErrorResponsesCountAsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		w := newStallingWriter(0)
		var wg sync.WaitGroup
		wg.Go(func() { r.send(w, "eve", "GET", configMapsPath+"?labelSelector="+strings.Repeat("a", 500_000), nil) })
		synctest.Wait()
		if now, _ := r.memory.answers.Held(); now < 500_000 {
			t.Errorf("%d are held for %d bytes", now, w.largestWrite)
		}
		_ = w.SetWriteDeadline(time.Unix(1, 0))
		wg.Wait()
		if now, _ := r.memory.answers.Held(); now != 0 {
			t.Errorf("%d are held in the end", now)
		}
	})
}
