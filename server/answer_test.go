package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/server/budget"
	"proa.dev/watch"
)

// wholeList encodes a list as a whole, as it would be without pieces.
func wholeList(t *testing.T, e *encoder, l *List) []byte {
	t.Helper()
	var buf bytes.Buffer
	objects := make([]kind.Object, len(l.Items))
	for i, it := range l.Items {
		objects[i] = e.seen(it.Object())
	}
	if e.f.shape == tabular {
		if err := e.raw(&buf, e.table(objects, l.Meta, true)); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	plain := *e
	plain.f.media, plain.f.pretty = codec.JSON, false
	if err := plain.list(&buf, l, nil); err != nil {
		t.Fatal(err)
	}
	switch {
	case e.f.media == codec.YAML:
		text, err := yaml.JSONToYAML(buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return text
	case e.f.pretty:
		var text bytes.Buffer
		if err := json.Indent(&text, buf.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		return text.Bytes()
	}
	return buf.Bytes()
}

// TestPiecesMakeTheWhole: a list that is taken from the buffer item by item is byte for byte what it is as a whole.
func TestPiecesMakeTheWhole(t *testing.T) {
	s, pods := bench(t)
	odd := []string{"plain", "a\nb\n", " x: |\n  - [y]\n\n", "items: []\n", "it's \"<&>\" ☃\u2028", strings.Repeat("long ", 100), "", "true", "0x1f", "\"rows\":[]}"}
	for _, n := range []int{0, 1, 2, 50} {
		l := &List{Meta: metav1.ListMeta{ResourceVersion: "7", Continue: "x: []", RemainingItemCount: new(int64(9))}}
		for i := range n {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: "ns", Annotations: map[string]string{"a": odd[i%len(odd)], odd[(i+1)%len(odd)]: ""}}}
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: odd[(i+3)%len(odd)], Args: []string{odd[(i+5)%len(odd)]}}, {}}
			p.SetGroupVersionKind(pods.GroupVersionKind)
			l.Items = append(l.Items, watch.NewEntry("", p, 0))
		}
		for _, f := range []format{
			{media: codec.JSON}, {media: codec.JSON, pretty: true}, {media: codec.YAML}, {media: codec.YAML, pretty: true},
			{media: codec.JSON, shape: partial}, {media: codec.JSON, shape: partial, pretty: true}, {media: codec.YAML, shape: partial},
			{media: codec.JSON, shape: tabular}, {media: codec.JSON, shape: tabular, pretty: true}, {media: codec.YAML, shape: tabular},
			{media: codec.JSON, shape: tabular, include: metav1.IncludeObject}, {media: codec.YAML, shape: tabular, include: metav1.IncludeNone},
			{media: codec.Proto}, {media: codec.Proto, shape: partial},
		} {
			e := &encoder{codec: s.State.Codec, def: pods, f: f}
			var buf, got bytes.Buffer
			spill := func() error {
				_, err := buf.WriteTo(&got)
				return err
			}
			if err := e.list(&buf, l, spill); err != nil {
				t.Fatal(err)
			}
			_ = spill()
			want := []byte(nil)
			if f.media == codec.Proto { // whose whole is compared with the library in TestListsAreThoseOfTheCodec
				var whole bytes.Buffer
				if err := e.list(&whole, l, nil); err != nil {
					t.Fatal(err)
				}
				want = whole.Bytes()
			} else {
				want = wholeList(t, e, l)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d items as %+v: got\n%.800s\nwant\n%.800s", n, f, got.Bytes(), want)
			}
		}
	}
}

// TestListsAreSentInPieces: no list is in memory as a whole, in whichever format it is asked for. A short one has a length.
func TestListsAreSentInPieces(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.fill(80, 50<<10)
	for name, headers := range map[string][]string{
		"json": nil, "pretty": {"User-Agent: curl/8"}, "gzip": {"Accept-Encoding: gzip"},
		"yaml":  {"Accept: application/yaml"},
		"proto": {"Accept: application/vnd.kubernetes.protobuf"},
		"table": {"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"},
	} {
		path := mapsPath
		if name == "table" {
			path += "?includeObject=Object"
		}
		w := newSocket(-1)
		if r.send(w, "alice", "GET", path, nil, headers...) || w.code != http.StatusOK {
			t.Errorf("%s: %d %.300s", name, w.code, w.got.String())
		}
		text := w.got.Bytes()
		if name == "gzip" {
			z, err := gzip.NewReader(&w.got)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = io.ReadAll(z); err != nil || w.header.Get("Content-Encoding") != "gzip" || w.header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: %v %v", name, err, w.header)
			}
		}
		if len(text) < 80*50<<10 || bytes.Count(text, []byte("m0079")) == 0 {
			t.Errorf("%s: %d bytes are not the whole list", name, len(text))
		}
		if w.largest > piece {
			t.Errorf("%s: %d bytes were written at once", name, w.largest)
		}
		if name == "json" && !json.Valid(text) {
			t.Errorf("%s is not sound", name)
		}
	}
	for path, length := range map[string]bool{mapsPath + "?limit=1": true, mapsPath + "?limit=2": true, mapsPath + "/m0000": true, mapsPath: false} {
		w := newSocket(-1)
		r.send(w, "alice", "GET", path, nil)
		if got := w.header.Get("Content-Length"); (got == fmt.Sprint(w.got.Len())) != length || !length && got != "" {
			t.Errorf("%s: %d bytes, Content-Length %q", path, w.got.Len(), got)
		}
	}
}

// TestListsNobodyReadsAreBounded: a user whose clients read nothing holds a piece for each of a bounded number of lists,
// whatever the lists are long and whatever seats they have: these are exempt. Then its requests are refused; others are served.
func TestListsNobodyReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.fill(40, 50<<10)
		r.memory.answers = budget.New(4 * 20 * piece)
		r.send(newSocket(-1), "warm", "GET", mapsPath, nil)
		var wg sync.WaitGroup
		var sockets []*socket
		for range 10000 {
			w := newSocket(0)
			sockets = append(sockets, w)
			wg.Go(func() { r.send(w, "root system:masters", "GET", mapsPath, nil) })
		}
		synctest.Wait()
		sending, busy := 0, 0
		for _, w := range sockets {
			w.mu.Lock()
			if w.largest >= piece {
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
		// Of the others a thousand wait. Of those who are refused, not all are told so: nobody reads it.
		most := 20 * piece / leastHeld
		if sending > 20 || sending == 0 || busy > most || busy == 0 {
			t.Errorf("%d lists are being sent, %d were refused", sending, busy)
		}
		if w := newSocket(-1); r.send(w, "alice", "GET", mapsPath, nil) || w.code != http.StatusOK {
			t.Errorf("somebody else: %d", w.code)
		}
		wg.Wait() // all are cut off in the end
		for _, w := range sockets {
			if w.largest >= piece && !w.isCut {
				t.Error("an answer nobody read was not cut off")
			}
		}
		if now, peak := r.memory.answers.Held(); now != 0 || peak > 2*20*piece+piece {
			t.Errorf("%d are held, at most %d were", now, peak)
		}
	})
}

// TestSmallAnswersNobodyReadsHoldNoSeat: clients that take nothing of a small answer, of a resource or another path, keep
// nobody waiting.
func TestSmallAnswersNobodyReadsHoldNoSeat(t *testing.T) {
	for name, path := range map[string]string{"path": "/version", "discovery": "/api", "object": mapsPath + "/m0000", "list": mapsPath + "?limit=1", "watch": mapsPath + "?watch=1", "none": mapsPath + "/none"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemoryRig(t, 10)
				r.fill(2, 100)
				var wg sync.WaitGroup
				var sockets []*socket
				for range 500 { // two connections of 250 streams
					w := newSocket(0)
					sockets = append(sockets, w)
					wg.Go(func() { r.send(w, "stranger", "GET", path, nil) })
				}
				synctest.Wait()
				start, w := time.Now(), newSocket(-1)
				if r.send(w, "alice", "GET", path[:min(len(path), len(mapsPath))], nil); w.code != http.StatusOK || time.Since(start) != 0 {
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

// TestLongListsNobodyReadsGiveTheirSeatUp: while a long list is sent it keeps its seat, so that there are not more of them than
// seats. Some are left to other users. When requests of the same one wait for a seat, a client that takes nothing loses it.
func TestLongListsNobodyReadsGiveTheirSeatUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.fill(20, 50<<10)
		var wg sync.WaitGroup
		var sockets []*socket
		for range 200 {
			w := newSocket(0)
			sockets = append(sockets, w)
			wg.Go(func() { r.send(w, "stranger", "GET", mapsPath, nil) })
		}
		synctest.Wait()
		begun := func() (n int) {
			for _, w := range sockets {
				if w.began() {
					n++
				}
			}
			return n
		}
		sending := begun()
		if sending == 0 || sending > 100 {
			t.Errorf("%d lists are being sent with 100 seats", sending)
		}
		start, w := time.Now(), newSocket(-1)
		if r.send(w, "alice", "GET", mapsPath, nil); w.code != http.StatusOK || time.Since(start) != 0 {
			t.Errorf("%d after %v", w.code, time.Since(start))
		}
		time.Sleep(stallContest + 2*stallInterval)
		synctest.Wait()
		if now := begun(); now <= sending {
			t.Errorf("%d lists were being sent, and no other one after that", sending)
		}
		for _, w := range sockets { // also refusals are not read
			_ = w.SetWriteDeadline(time.Unix(1, 0))
		}
		wg.Wait()
	})
}

// TestSlowClientsAreNotCutOff: a client that takes its list slowly, but takes it, gets all of it when nobody waits.
func TestSlowClientsAreNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.fill(20, 50<<10)
		w := &slowSocket{socket: newSocket(-1)}
		if r.send(w, "alice", "GET", mapsPath, nil) || w.code != http.StatusOK || !json.Valid(w.got.Bytes()) {
			t.Errorf("%d, %d bytes", w.code, w.got.Len())
		}
	})
}

// slowSocket takes a piece in twenty seconds.
type slowSocket struct{ *socket }

func (s *slowSocket) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Second)
	return s.socket.Write(p)
}

// TestSlowServersCutNobodyOff: when the server is so busy that it takes long to send a piece, and clients take all that they are sent, they get
// their lists although others wait for the seats.
func TestSlowServersCutNobodyOff(t *testing.T) {
	for _, stalled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newMemoryRig(t, 100)
			r.fill(5, 50<<10)
			var wg sync.WaitGroup
			var sockets []*busySocket
			for range 200 {
				w := &busySocket{slowSocket: &slowSocket{socket: newSocket(-1)}, stalled: stalled}
				sockets = append(sockets, w)
				wg.Go(func() { r.send(w, "alice", "GET", mapsPath, nil) })
			}
			wg.Wait()
			whole, cut := 0, 0
			for _, w := range sockets {
				if w.isCut {
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

// busySocket takes a piece in twenty seconds, and says who is at fault.
type busySocket struct {
	*slowSocket
	stalled bool
}

func (s *busySocket) StalledByClient() bool { return s.stalled }

// TestSocketOfHTTP1: a request of HTTP/1.1 has the socket of its connection, which tells whether the client takes what it is sent.
func TestSocketOfHTTP1(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		got := make(chan net.Conn, 1)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got <- socketOf(req) }))
		s.Config.ConnContext, s.EnableHTTP2 = WithSocket, h2
		s.StartTLS()
		defer s.Close()
		res, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		socket := <-got
		if h2 != (socket == nil) {
			t.Errorf("HTTP/2 %v: the socket is %v", h2, socket)
		}
		if out := (&recorder{ResponseWriter: httptest.NewRecorder(), socket: socket}); out.stalledByClient() != h2 {
			t.Errorf("HTTP/2 %v: the client stalls: %v", h2, !h2)
		}
	}
}

// TestWatchesBeginInPieces: the state with which a watch begins is sent in pieces that the client must take. After that a
// watch may be quiet for as long as it likes, and so may its client.
func TestWatchesBeginInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.fill(100, 50<<10)
		const path = mapsPath + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=600"
		deaf := newSocket(0)
		start := time.Now()
		used := allocated(func() { r.send(deaf, "stranger", "GET", path, nil) })
		if time.Since(start) < stallLimit || time.Since(start) > stallLimit+2*stallInterval {
			t.Errorf("a watch whose beginning nobody read ended after %v", time.Since(start))
		}
		if used > 12<<20 { // for the first piece of it
			t.Errorf("%d bytes were allocated for a state of 5 MB that nobody read", used)
		}
		if deaf.largest > piece {
			t.Errorf("%d bytes were written at once", deaf.largest)
		}
		var wg sync.WaitGroup
		w := newSocket(-1)
		wg.Go(func() { r.send(w, "alice", "GET", path, nil) })
		synctest.Wait()
		w.mu.Lock()
		if events := bytes.Count(w.got.Bytes(), []byte(`{"type":"ADDED"`)); events != 100 || !bytes.Contains(w.got.Bytes(), []byte("initial-events-end")) {
			t.Errorf("%d events of 100, and the bookmark", events)
		}
		w.window = w.got.Len() // and now it takes no more
		w.mu.Unlock()
		if now, _ := r.memory.answers.Held(); now != 0 {
			t.Errorf("an open watch holds %d", now)
		}
		r.create(mapsOf(), configMap("more"))
		time.Sleep(2 * stallLimit)
		if w.isCut {
			t.Error("a quiet client of a watch was cut off")
		}
		_ = w.SetWriteDeadline(time.Unix(1, 0))
		wg.Wait()
	})
}

// unsound is a ConfigMap that cannot be encoded.
type unsound struct{ *corev1.ConfigMap }

func (unsound) MarshalJSON() ([]byte, error) { return nil, errors.New("it cannot be encoded") }

// TestListsThatFailAreAborted: an item that cannot be encoded makes a Status when nothing was sent, and later ends the answer so
// that no client takes it for whole.
func TestListsThatFailAreAborted(t *testing.T) {
	s, _ := bench(t)
	def := s.State.Def(mapsOf())
	for _, headers := range []string{"", "gzip"} {
		for before, want := range map[int]bool{1: false, 10: true} {
			l := &List{}
			for range before {
				m := configMap("x")
				m.Data["a"] = strings.Repeat("x", 50<<10)
				l.Items = append(l.Items, watch.NewEntry("", m, 0))
			}
			l.Items = append(l.Items, watch.NewEntry("", unsound{configMap("y")}, 0))
			w := newSocket(-1)
			req := httptest.NewRequestWithContext(t.Context(), "GET", mapsPath, nil)
			req.Header.Set("Accept-Encoding", headers)
			aborted := func() (aborted bool) {
				defer func() { aborted = recover() != nil }()
				s.writeAnswer(&recorder{ResponseWriter: w}, req, &Response{Code: http.StatusOK, List: l}, &encoder{codec: s.State.Codec, def: def, f: format{media: codec.JSON}})
				return false
			}()
			if aborted != want || !want && w.code != http.StatusInternalServerError {
				t.Errorf("after %d items: aborted %v, %d", before, aborted, w.code)
			}
		}
	}
}

// TestPastIsCounted: objects that are read from the store for one list, and are nobody else's, count as held by its user.
func TestPastIsCounted(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.fill(40, 50<<10)
	cache := r.State.Cache(r.State.Def(mapsOf()))
	if err := cache.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", mapsPath, cache.Rev())
	w := newSocket(-1)
	if r.send(w, "alice", "GET", path, nil); w.code != http.StatusOK || !json.Valid(w.got.Bytes()) {
		t.Fatalf("%d %.200s", w.code, w.got.String())
	}
	if _, peak := r.memory.answers.Held(); peak < 40*50<<10 {
		t.Errorf("at most %d were held for 2 MB of objects", peak)
	}
	r.memory.answers = budget.New(8 << 20)
	held, _ := r.memory.answers.Force("alice", piece)
	w = newSocket(-1)
	if r.send(w, "alice", "GET", path, nil); w.code != http.StatusTooManyRequests {
		t.Errorf("beyond its share: %d", w.code)
	}
	held.Release()
}

// TestDiscoveryIsCounted: the document of all groups is made for each request, and counts as held by its user.
func TestDiscoveryIsCounted(t *testing.T) {
	r := newMemoryRig(t, 100)
	const all = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	w := newSocket(-1)
	if r.send(w, "alice", "GET", "/apis", nil, all); w.code != http.StatusOK {
		t.Fatalf("%d %.200s", w.code, w.got.String())
	}
	if _, peak := r.memory.answers.Held(); peak < int64(w.got.Len()) {
		t.Errorf("at most %d were held for %d bytes", peak, w.got.Len())
	}
	r.memory.answers = budget.New(4 * 2 * piece)
	held, _ := r.memory.answers.Force("alice", piece)
	defer held.Release()
	w = newSocket(-1)
	if r.send(w, "alice", "GET", "/apis", nil, all); w.code != http.StatusTooManyRequests || w.header.Get("Etag") != "" {
		t.Errorf("beyond its share: %d %v", w.code, w.header)
	}
}

// TestTimeoutsAreReadFirst, of every request that does not last, before it is known who asks: as upstream does.
func TestTimeoutsAreReadFirst(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(mapsOf(), configMap("x"))
	const message = `invalid timeout specified in the request URL - time: invalid duration \"invalid\"`
	for path, want := range map[string]int{
		"/?timeout=invalid": 400, "/version?timeout=invalid": 400, "/healthz?timeout=invalid": 400, "/api?timeout=invalid": 400, "/none?timeout=invalid": 400,
		mapsPath + "?timeout=invalid": 400, mapsPath + "/x?timeout=invalid": 400, "/apis/none.example.com/v1/things?timeout=invalid": 400,
		"/?timeout=1s": 200, "/?timeout=": 200, "/?timeout=0s": 200, "/?timeout=-1s": 200, "/?timeout=9999h": 200,
		mapsPath + "/x?timeout=0s": 200, mapsPath + "/x?timeout=-1s": 200, mapsPath + "?timeout=9999h": 200,
		mapsPath + "?watch=1&timeoutSeconds=1&timeout=invalid": 200,
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

// TestWebSocketsThatFailLeaveNothing: a watch whose handshake fails is closed, or anybody could use up all watches.
func TestWebSocketsThatFailLeaveNothing(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.create(mapsOf(), configMap("x"))
	for range 3 {
		r.send(newSocket(-1), "eve", "GET", mapsPath+"?watch=1", nil, "Upgrade: websocket", "Connection: Upgrade")
	}
	if open := r.watches.Load(); open != 0 {
		t.Errorf("%d watches are open", open)
	}
}

// TestWritesThatAreDoneAreNotRefused: when there is no memory for a large answer, a client is told to ask again only if nothing was done
// for it. A write that has happened is answered, or its connection ends.
func TestWritesThatAreDoneAreNotRefused(t *testing.T) {
	r := newMemoryRig(t, 100)
	r.fill(1, 200<<10)
	r.memory.answers = budget.New(4 * 256 << 10)
	held, _ := r.memory.answers.Force("alice", 128<<10)
	w := newSocket(-1)
	if r.send(w, "alice", "GET", mapsPath+"/m0000", nil); w.code != http.StatusTooManyRequests {
		t.Errorf("an object is read: %d", w.code)
	}
	body := func(size int) io.Reader {
		return strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":"%s"}}`, strings.Repeat("x", size)))
	}
	w = newSocket(-1)
	if r.send(w, "alice", "POST", mapsPath, body(200<<10), "Content-Type: application/json"); w.code != http.StatusCreated || !json.Valid(w.got.Bytes()) {
		t.Errorf("an object is created: %d %.200s", w.code, w.got.String())
	}
	w = newSocket(-1)
	aborted := r.send(w, "alice", "PUT", mapsPath+"/large", body(400<<10), "Content-Type: application/json")
	if !aborted || w.code != 0 {
		t.Errorf("an object is written, and there is no memory at all: aborted %v, %d", aborted, w.code)
	}
	held.Release()
	if now, _ := r.memory.answers.Held(); now != 0 {
		t.Errorf("%d are held", now)
	}
}

// TestExemptRequestsDoNotWaitForMemory: while many users hold all of it, and very many wait, administrators and probes are answered.
func TestExemptRequestsDoNotWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.fill(1, 100)
		r.memory.answers = budget.New(32 * piece)
		ctx, stop := context.WithCancel(t.Context())
		for i := range 4 {
			lease, _ := r.memory.answers.Take(ctx, fmt.Sprint("holder", i), 8*piece)
			defer lease.Release()
		}
		for i := range 100 {
			go func() { _, _ = r.memory.answers.Take(ctx, fmt.Sprint("waiter", i), piece) }()
		}
		lease, _ := r.memory.answers.Force("anybody", 16*piece) // refusals that strangers do not read
		defer lease.Release()
		synctest.Wait()
		for who, path := range map[string]string{"anybody": "/healthz", "root system:masters": mapsPath + "/m0000", "root2 system:masters": mapsPath} {
			start, w := time.Now(), newSocket(-1)
			if r.send(w, who, "GET", path, nil); w.code > http.StatusOK || w.got.Len() == 0 || time.Since(start) != 0 {
				t.Errorf("%s %s: %d after %v", who, path, w.code, time.Since(start))
			}
		}
		w := newSocket(-1)
		if r.send(w, "bob", "GET", mapsPath+"/m0000", nil); w.code != http.StatusTooManyRequests {
			t.Errorf("somebody who is not exempt: %d", w.code)
		}
		stop()
		synctest.Wait()
	})
}

// TestRefusalsAreCounted: every refusal that a client does not read counts as held by its user, in whatever place the request is refused,
// and there is an end to them.
func TestRefusalsAreCounted(t *testing.T) {
	for name, ask := range map[string][]string{
		"a stranger": {"", mapsPath}, "timeout": {"eve", "/?timeout=invalid"}, "impersonation": {"eve", mapsPath, "Impersonate-Group: g"},
		"a stream": {"eve", "/api/v1/namespaces/ns/pods/none/log"}, "a stream of nothing": {"eve", "/api/v1/namespaces/ns/nothing/none/log"},
		"a stranger's stream": {"", "/api/v1/namespaces/ns/pods/none/log"}, "an object": {"eve", mapsPath + "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemoryRig(t, 100)
				r.fill(1, 1)
				r.memory.answers = budget.New(4 * 20 * piece)
				var wg sync.WaitGroup
				var sockets []*socket
				for range 10000 {
					w := newSocket(0)
					sockets = append(sockets, w)
					wg.Go(func() { r.send(w, ask[0], "GET", ask[1], nil, ask[2:]...) })
					synctest.Wait()
				}
				sent := 0
				for _, w := range sockets {
					if w.began() {
						sent++
					}
				}
				if now, _ := r.memory.answers.Held(); sent == 0 || sent > 2*20*piece/leastHeld || now < int64(sent)*leastHeld {
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

// TestLargeRefusalsAreCounted: a refusal that repeats a large part of its request counts as much.
func TestLargeRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		w := newSocket(0)
		var wg sync.WaitGroup
		wg.Go(func() { r.send(w, "eve", "GET", mapsPath+"?labelSelector="+strings.Repeat("a", 500_000), nil) })
		synctest.Wait()
		if now, _ := r.memory.answers.Held(); now < 500_000 {
			t.Errorf("%d are held for %d bytes", now, w.largest)
		}
		_ = w.SetWriteDeadline(time.Unix(1, 0))
		wg.Wait()
		if now, _ := r.memory.answers.Held(); now != 0 {
			t.Errorf("%d are held in the end", now)
		}
	})
}
