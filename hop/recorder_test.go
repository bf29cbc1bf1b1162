package hop

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"
)

// TestFloodsLeaveOthersAlone: whoever writes a lot, is refused a lot, or writes one object again and again pushes out his
// own records, and not those that people look for.
func TestFloodsLeaveOthersAlone(t *testing.T) {
	const limit = shareLimit
	long := make([]Step, MaxSteps)
	for i := range long {
		long[i] = Step{Name: strings.Repeat("n", MaxName), Detail: strings.Repeat("d", MaxText)}
	}
	floods := map[string]func(i int) Record{
		"refused writes of one user": func(i int) Record {
			return Record{Verb: "create", Resource: "pods", Name: fmt.Sprint("p", i), User: "mallory", Code: 403, Refused: Authorize}
		},
		"refused updates of the same object by one user": func(i int) Record {
			return Record{UID: "web", Verb: "update", Resource: "deployments", User: "mallory", Code: 409, Refused: Commit}
		},
		"renewals of leases": func(i int) Record {
			return Record{UID: types.UID(fmt.Sprint("lease", i%500)), Rev: int64(i + 10), Verb: "update", Group: "coordination.k8s.io",
				Resource: "leases", User: "system:node:n1", Code: 200}
		},
		"events": func(i int) Record {
			return Record{UID: types.UID(fmt.Sprint("event", i)), Rev: int64(i + 10), Verb: "create", Resource: "events", Code: 201}
		},
		"updates of one object": func(i int) Record {
			return Record{UID: "hot", Rev: int64(i + 10), Verb: "update", Resource: "configmaps", User: "mallory", Code: 200}
		},
		"updates of two objects with all that a record can hold": func(i int) Record {
			return Record{UID: types.UID(fmt.Sprint("hot", i%2)), Rev: int64(i + 10), Verb: "update", Resource: "configmaps", Steps: long}
		},
		"writes of many objects in one namespace, by many users": func(i int) Record {
			return Record{UID: types.UID(fmt.Sprint("many", i)), Rev: int64(i + 10), Verb: "create", Resource: "configmaps",
				Namespace: "crowd", User: fmt.Sprint("mallory", i), Code: 201}
		},
		"work of one node": func(i int) Record {
			return Record{UID: types.UID(fmt.Sprint("pod", i)), Rev: 1, Verb: Sandbox, Resource: "pods", User: "system:node:n1"}
		},
		"work of one node with all that a record can hold": func(i int) Record {
			return Record{UID: types.UID(fmt.Sprint("pod", i)), Rev: 1, Verb: Program, Resource: "services", User: "system:node:n1",
				Steps: long}
		},
	}
	for what, flood := range floods {
		t.Run(what, func(t *testing.T) {
			r := newRecorder()
			r.Add(Record{UID: "web", Rev: 1, Verb: "create", Resource: "deployments", User: "alice", Code: 201})
			r.Add(Record{UID: "web", Verb: "update", Resource: "deployments", User: "alice", Code: 422, Refused: Schema})
			r.Add(Record{UID: "web", Rev: 2, Verb: Pull, Resource: "pods", User: "system:node:n2"})
			for i := range 10 * limit {
				r.Add(flood(i))
			}
			if got := r.Of("web"); !slices.ContainsFunc(got, func(x Record) bool { return x.Rev == 1 }) {
				t.Error("the write of the deployment is forgotten")
			}
			if got := r.Of("web"); !slices.ContainsFunc(got, func(x Record) bool { return x.User == "alice" && x.Refused == Schema }) {
				t.Error("alice's refused write is forgotten")
			}
			if got := r.Of("web"); !slices.ContainsFunc(got, func(x Record) bool { return x.Verb == Pull }) {
				t.Error("the work of the other node is forgotten")
			}
			last := flood(10*limit - 1)
			if !slices.ContainsFunc(r.Select(func(x *Record) bool { return x.UID == last.UID && x.Name == last.Name }),
				func(x Record) bool { return x.Rev == last.Rev }) {
				t.Error("the last one of the flood is not kept")
			}
		})
	}
}

// TestManyWritersShareTheRecorder: records of many objects push out the oldest of them.
func TestManyWritersShareTheRecorder(t *testing.T) {
	r := NewRecorder(100)
	for i := range 1000 {
		r.Add(Record{UID: types.UID(fmt.Sprint(i)), Rev: int64(i)})
	}
	if got := r.Select(func(*Record) bool { return true }); len(got) != 100 || got[0].Rev != 900 || got[99].Rev != 999 {
		t.Errorf("%d records, from %d", len(got), got[0].Rev)
	}
}

// TestNodesShareTheirHistory: a node may have all of the room for the work of nodes as long as there is no other one; the others then
// get their part of it.
func TestNodesShareTheirHistory(t *testing.T) {
	const limit = 4096
	r := NewRecorder(limit)
	add := func(node string, n int) {
		for i := range n {
			r.Add(Record{UID: types.UID(fmt.Sprint(node, i)), Rev: 1, Verb: Pull, Resource: "pods", User: "system:node:" + node})
		}
	}
	count := func(node string) int {
		return len(r.Select(func(rec *Record) bool { return rec.User == "system:node:"+node }))
	}
	add("a", 2*limit)
	if got := count("a"); got != limit/4 {
		t.Errorf("the only node has %d records", got)
	}
	add("b", limit)
	add("a", limit)
	if a, b := count("a"), count("b"); a != limit/4-limit/16 || b != limit/16 {
		t.Errorf("there are %d and %d records of two nodes", a, b)
	}
	if _, known := r.Committed("a1", 1); known || r.Len() != limit/4 {
		t.Errorf("%d records", r.Len())
	}
}

// TestUpdateOfManyObjectsOfANode: the open records of different objects of a node are different ones.
func TestUpdateOfManyObjectsOfANode(t *testing.T) {
	r, start := NewRecorder(100), time.Now()
	for _, rec := range []Record{{UID: "a"}, {UID: "b"}, {Name: "c"}, {Name: "d"}} {
		rec.Rev, rec.Verb, rec.User, rec.Start, rec.Open = 1, Program, "system:node:n1", start, true
		r.Update(rec)
		rec.Open = false
		rec.Took[Network] = time.Second
		r.Update(rec)
		rec.Open = true // another try, which began later
		rec.Start = start.Add(time.Minute)
		r.Update(rec)
	}
	if open := r.Select(func(rec *Record) bool { return rec.Open }); len(open) != 4 || r.Len() != 8 {
		t.Errorf("%d are open of %d", len(open), r.Len())
	}
}

// TestSelectAllocatesOnce: the memory for the copies is there before they are made, because every write waits meanwhile.
func TestSelectAllocatesOnce(t *testing.T) {
	r := NewRecorder(8192)
	for i := range 8192 {
		r.Add(Record{UID: types.UID(fmt.Sprint(i)), Rev: int64(i), Verb: "create"})
	}
	all := func(*Record) bool { return true }
	if n := testing.AllocsPerRun(5, func() { r.Select(all) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
	out := make([]Record, 0, 10)
	if n := testing.AllocsPerRun(5, func() { out = out[:0]; r.copyInto(&out, all) }); n > 0 || len(out) != 10 {
		t.Errorf("%v allocations while others wait, %d records", n, len(out))
	}
	asked := 0
	if got := r.Select(func(*Record) bool { asked++; return asked <= 100 || asked > 8192 }); len(got) != 8192 {
		t.Errorf("%d records, of those that came between counting and copying too", len(got))
	}
}

// longestRecord returns a record in which everything is as long as it may be, and longer.
func longestRecord(i int) Record {
	text := func(n int) string { return strings.Repeat("x", n-8) + fmt.Sprintf("%08d", i) }
	r := Record{UID: types.UID(text(40)), Rev: int64(i), Verb: "create", Group: text(300), Resource: text(300), Subresource: text(300),
		Namespace: text(300), Name: text(300), User: text(300), Error: text(300), Process: text(300), CauseUID: types.UID(text(40)),
		Origin: &Origin{text(300), text(300), text(300), text(300), time.Now(), text(300)}}
	for range 100 {
		r.Steps = append(r.Steps, Step{Name: text(300), Detail: text(300)})
	}
	return r
}

// TestSizeInMemory: the recorder of a server takes less than 20 MB, whatever is recorded: the longest names and the most
// steps, many small records, and bodies.
func TestSizeInMemory(t *testing.T) {
	small := func(i int) Record {
		return Record{UID: types.UID(fmt.Sprintf("%036d", i)), Rev: int64(i), Verb: "update", Resource: "configmaps", User: "u",
			Origin: &Origin{Agent: fmt.Sprint("kubectl", i)}}
	}
	refused := func(i int) Record {
		r := longestRecord(i)
		r.Refused = Mutate
		return r
	}
	body := make([]byte, 2*MaxBody)
	for what, newRecord := range map[string]func(int) Record{"longest": longestRecord, "small": small, "refused": refused} {
		t.Run(what, func(t *testing.T) {
			n := 1500
			if what == "small" {
				n = 10000
			}
			heap := func() int64 {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			r := NewRecorder(8192)
			for i := range n {
				rec := newRecord(i)
				r.Add(rec)
				if i < 300 {
					lease := longestRecord(i)
					lease.Group, lease.Resource = "coordination.k8s.io", "leases"
					r.Add(lease)
					work := longestRecord(i)
					work.Verb, work.User = Pull, fmt.Sprint("system:node:n", i%8)
					r.Add(work)
				}
				w := &Wire{}
				w.SetRequest(body)
				w.SetResponse(body)
				r.SetWire(rec.UID, rec.Rev, w)
			}
			took := heap() - before
			runtime.KeepAlive(r)
			t.Logf("%d records take %d bytes", r.Len(), took)
			if took > 20_000_000 {
				t.Errorf("%d bytes", took)
			}
			if what == "small" && r.main.count != 8192 {
				t.Errorf("%d small records are kept", r.main.count)
			}
		})
	}
}

// TestSizesAreCounted: the constants by which memory is counted are not smaller than the types.
func TestSizesAreCounted(t *testing.T) {
	for what, have := range map[string][2]int{
		"slot": {int(unsafe.Sizeof(Record{}) + unsafe.Sizeof(link{})), slotSize}, "step": {int(unsafe.Sizeof(Step{})), stepSize},
		"origin": {int(unsafe.Sizeof(Origin{})), originSize}, "wire": {int(unsafe.Sizeof(Wire{})), wireSize},
	} {
		if have[0] > have[1] {
			t.Errorf("a %s has %d bytes and counts as %d", what, have[0], have[1])
		}
	}
}

// TestHistoryKeepsItsLists: after any number of additions, updates and removals the lists of a history hold the same records, in the
// order in which these were added.
func TestHistoryKeepsItsLists(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h := newHistory(50, maphash.MakeSeed(), newGrouping(byObject, 8, 1<<20), newGrouping(byNamespace, 20, 1))
	objects := &h.groupings[0]
	h.maxBytes, objects.shareBytes = 40*slotSize, 6*slotSize
	for n := range 5000 {
		if n == 2500 {
			objects.share, objects.shareBytes = h.limit, h.maxBytes
		}
		rec := Record{UID: types.UID(fmt.Sprint("o", random.IntN(12))), Rev: int64(n), Error: strings.Repeat("e", random.IntN(200))}
		rec.Namespace = "of-" + string(rec.UID[len(rec.UID)-1:])
		h.add(&rec)
		if n%3 == 0 {
			rec.Error = strings.Repeat("e", random.IntN(400))
			h.replace(h.last-1, &rec)
		}
		var revs []int64
		bytes, byKey, bytesByKey := 0, map[types.UID]int{}, map[types.UID]int{}
		for i, have := range h.all() {
			revs, bytes = append(revs, have.Rev), bytes+int(h.links[i].size)
			byKey[have.UID]++
			bytesByKey[have.UID] += int(h.links[i].size)
		}
		if !slices.IsSorted(revs) || len(revs) != h.count || bytes != h.bytes || bytes > h.maxBytes || len(revs) > h.limit ||
			revs[len(revs)-1] != int64(n) {
			t.Fatalf("after %d: %v, %d bytes, counted %d and %d", n, revs, bytes, h.count, h.bytes)
		}
		if lists := h.groupings[1].lists; int(lists[0].count+lists[1].count) != h.count || int(lists[0].bytes+lists[1].bytes) != h.bytes {
			t.Fatalf("after %d: the lists of namespaces have %+v of %d records and %d bytes", n, lists, h.count, h.bytes)
		}
		for uid, want := range byKey {
			got := 0
			for _, have := range h.of(string(uid)) {
				if got++; have.UID != uid {
					t.Fatalf("a record of %s is in the list of %s", have.UID, uid)
				}
			}
			c := objects.lists[h.listOf(objects, string(uid))]
			if int(c.bytes) != bytesByKey[uid] || bytesByKey[uid] > objects.shareBytes {
				t.Fatalf("after %d: the list of %s has %d bytes, counted %d", n, uid, bytesByKey[uid], c.bytes)
			}
			if got != want || want > objects.share {
				t.Fatalf("after %d: the list of %s has %d, there are %d", n, uid, got, want)
			}
		}
	}
}

// TestUpdateReplacesTheOpenRecord: work that goes on has one record.
func TestUpdateReplacesTheOpenRecord(t *testing.T) {
	r := NewRecorder(10)
	start := time.Now()
	pull := Record{UID: "p", Rev: 4, Verb: Pull, User: "system:node:n1", Start: start, Open: true}
	r.Update(pull)
	pull.Took[Node] = time.Second
	r.Update(pull)
	other := pull
	other.User = "system:node:n2"
	r.Update(other)
	pull.Open = false
	r.Update(pull)
	got := r.Of("p")
	if len(got) != 2 || got[0].Open || got[0].Took[Node] != time.Second || !got[1].Open {
		t.Errorf("%+v", got)
	}
	if pull.Took[Node]++; pull.Took[Node] > 0 {
		r.Update(pull) // it has ended, so this is another one
	}
	if r.Len() != 3 {
		t.Errorf("%d records", r.Len())
	}
}

func TestNilRecorder(t *testing.T) {
	r := NewRecorder(0)
	if r != nil {
		t.Fatal("a recorder of nothing")
	}
	r.Add(Record{})
	r.Update(Record{})
	r.Restore(Record{})
	r.SetWire("u", 1, &Wire{})
	_, known := r.Committed("u", 1)
	if r.Len() != 0 || r.Of("u") != nil || r.Select(func(*Record) bool { return true }) != nil || known {
		t.Error("a nil recorder has records")
	}
}

// TestDurations: each hop of a record that has ended is counted once; restored records were counted before.
func TestDurations(t *testing.T) {
	r := NewRecorder(10)
	rec := Record{UID: "a", Verb: Pull, Open: true}
	rec.Took[Node] = time.Second
	r.Add(rec)
	rec.Open, rec.Took[Node], rec.Took[Watch] = false, 2*time.Second, time.Millisecond
	r.Update(rec)
	r.Restore(rec)
	for h := Client; h <= Network; h++ {
		want := map[Hop]time.Duration{Node: 2 * time.Second, Watch: time.Millisecond}[h]
		if d := r.Durations(h); d.Seconds != want.Seconds() || d.Count > 1 {
			t.Errorf("%s: %d, %v", h, d.Count, d.Seconds)
		}
	}
	if d := (*Recorder)(nil).Durations(Node); d.Count != 0 {
		t.Error("a nil recorder has durations")
	}
}

// TestDetail: of one user 150 requests in a second are recorded in detail, and a burst of as many besides; of all 200.
func TestDetail(t *testing.T) {
	begin := time.Now()
	count := func(r *Recorder, users ...string) (detailed int) {
		for i := range 10000 {
			if r.Detail(begin.Add(time.Duration(i)*100*time.Microsecond), users[i%len(users)]) {
				detailed++
			}
		}
		return detailed
	}
	r := NewRecorder(10)
	if n := count(r, "alice"); n < 290 || n > 300 || (*Recorder)(nil).Detail(begin, "alice") {
		t.Errorf("%d of 10000", n)
	}
	last := begin.Add(9999 * 100 * time.Microsecond)
	if r.Detail(last, "alice") || !r.Detail(last, "") {
		t.Error("clients and callers in this process share what is recorded in detail")
	}
	if !r.Detail(begin.Add(-time.Hour), "alice") { // the clock of the machine was set back
		t.Error("never again")
	}
	if n := count(NewRecorder(10), ""); n != 200+199 {
		t.Errorf("%d of 10000 in this process", n)
	}
	if n := count(NewRecorder(10), "a", "b", "c", "d", "e", "f", "g", "h"); n < 390 || n > 400 {
		t.Errorf("%d of 10000 of many users", n)
	}
}

// TestDetailOfOthers: whoever sends very many requests leaves it to others that theirs are recorded in detail.
func TestDetailOfOthers(t *testing.T) {
	r, begin, detailed := NewRecorder(10), time.Now(), 0
	for maphash.String(r.main.seed, "alice")%detailUsers == maphash.String(r.main.seed, "system:serviceaccount:m")%detailUsers {
		r = NewRecorder(10)
	}
	for i := range 100_000 {
		now := begin.Add(time.Duration(i) * 100 * time.Microsecond)
		r.Detail(now, fmt.Sprint("system:serviceaccount:m:", i%100))
		if i%1000 == 0 && r.Detail(now, "alice") {
			detailed++
		}
	}
	if detailed != 100 {
		t.Errorf("%d of 100 requests of another user", detailed)
	}
}

// TestBodiesOfOthersStay: whoever makes many large writes pushes out his own bodies, and not those of others.
func TestBodiesOfOthersStay(t *testing.T) {
	r := newRecorder()
	add := func(user string, i int) {
		rec := by(user, types.UID(fmt.Sprint(user, i)), "default")
		r.Add(rec)
		w := &Wire{}
		w.SetRequest(make([]byte, MaxBody))
		r.SetWire(rec.UID, rec.Rev, w)
	}
	of := func(user string) int {
		return len(r.Select(func(rec *Record) bool { return rec.User == user && rec.Wire != nil }))
	}
	for i := range 1000 {
		if add("mallory", i); i%100 == 0 {
			add("alice", i)
		}
	}
	if alice, mallory := of("alice"), of("mallory"); alice != 10 || mallory != maxBodies/(MaxBody+wireSize)-10 {
		t.Errorf("%d bodies of alice are kept, and %d of mallory", alice, mallory)
	}
	if l := &r.bodies.clients; len(l.kept) != of("alice")+of("mallory") || l.held != len(l.kept)*(MaxBody+wireSize) {
		t.Errorf("%d bodies of %d bytes", len(l.kept), l.held)
	}
}

// TestBodiesOfCallersInThisProcess: objects that controllers hand over never push out the bodies of clients over HTTP, as long as these
// need no more than their part, and those that follow from the requests of one client not those of another.
func TestBodiesOfCallersInThisProcess(t *testing.T) {
	const most = 300
	// Whose request led to a write is known as long as no other object takes the place of its cause by chance.
	r := newRecorder()
	for areFound := func(cause string) bool {
		object := func(uid string) uint32 { return r.main.listOf(&r.main.groupings[0], uid) }
		for i := range most + 1 {
			for _, other := range []string{"alice", "of alice", "mallory", "of mallory"} {
				if uid := fmt.Sprint(other, i); uid != cause && object(uid) == object(cause) {
					return false
				}
			}
		}
		return true
	}; !areFound("alice0") || !areFound("mallory0"); {
		r = newRecorder()
	}
	const controller = "system:serviceaccount:kube-system:replicaset-controller"
	set := func(rec Record, inProcess bool) {
		r.Add(rec)
		w := &Wire{InProcess: inProcess, RequestJSON: func(b []byte) ([]byte, error) { return b, nil }}
		w.SetRequest(make([]byte, MaxBody/2))
		r.SetWire(rec.UID, rec.Rev, w)
	}
	request := func(user string, i int) { set(by(user, types.UID(fmt.Sprint(user, i)), "default"), false) }
	consequence := func(user string, i, of int) {
		rec := by(controller, types.UID(fmt.Sprint("of ", user, i)), "default")
		rec.Origin, rec.CauseUID, rec.CauseRev = nil, types.UID(fmt.Sprint(user, of)), 1
		set(rec, true)
	}
	kept := func(beginning string) int {
		return len(r.Select(func(rec *Record) bool { return strings.HasPrefix(string(rec.UID), beginning) && rec.Wire != nil }))
	}
	const size = wireSize + jsonSize + MaxBody/2
	request("alice", 0)
	for i := range 10 {
		consequence("alice", i, 0)
	}
	request("mallory", 0)
	for i := range most {
		consequence("mallory", i, 0)
	}
	if alice, of, more := kept("alice"), kept("of alice"), kept("of mallory"); alice != 1 || of != 10 || more != maxBodies/size-12 {
		t.Errorf("kept are %d bodies of alice, %d of what followed, and %d of what followed from mallory's request", alice, of, more)
	}
	for i := range most {
		request("mallory", i+1)
	}
	if alice, of, local := kept("alice"), kept("of alice"), r.bodies.local.held; alice != 1 || of != 10 || local > localBodies ||
		local < localBodies-size {
		t.Errorf("kept are %d bodies of alice, %d of what followed, and %d bytes of callers in this process", alice, of, local)
	}
	if held := r.bodies.held(); held > maxBodies || held < maxBodies-size {
		t.Errorf("%d bytes are held", held)
	}
	if r.KeepsBodies("coordination.k8s.io", "leases", "") || !r.KeepsBodies("", "pods", "status") {
		t.Error("bodies are kept of Leases, or not of Pods")
	}
	r.NoBodies = true
	if set(by("bob", "off", "default"), true); kept("off") != 0 || r.KeepsBodies("", "pods", "") {
		t.Error("bodies are kept although they are switched off")
	}
}

// TestBodiesMakeRoom: the bodies of the latest writes are kept, up to a size of all of them, and only with writes of main
// history that are there.
func TestBodiesMakeRoom(t *testing.T) {
	r := NewRecorder(1000)
	add := func(i int) {
		r.Add(Record{UID: types.UID(fmt.Sprint(i)), Rev: int64(i), Verb: "update"})
		r.Add(Record{UID: types.UID(fmt.Sprint(i)), Rev: int64(i), Verb: Reconcile})
		w := &Wire{}
		w.SetRequest([]byte(fmt.Sprint("request ", i)))
		w.SetResponse(make([]byte, MaxBody+1))
		r.SetWire(types.UID(fmt.Sprint(i)), int64(i), w)
	}
	for i := range 500 {
		add(i)
	}
	kept := r.Select(func(rec *Record) bool { return rec.Wire != nil })
	if want := maxBodies / (MaxBody + 200); len(kept) < want-1 || len(kept) > maxBodies/MaxBody {
		t.Errorf("%d writes have bodies", len(kept))
	}
	last := kept[len(kept)-1]
	if w := last.Wire; last.Rev != 499 || string(w.Request) != "request 499" || len(w.Response) != MaxBody || w.ResponseSize != MaxBody+1 ||
		last.Verb != "update" {
		t.Errorf("the last one: %+v", last)
	}
	if kept[0].Rev == 0 {
		t.Error("the first bodies are still kept")
	}
	r.SetWire("unknown", 1, &Wire{})
	for i := range 3000 { // the records of bodies are pushed out, and their slots used again
		r.Add(Record{UID: types.UID(fmt.Sprint("later", i)), Rev: int64(i), Verb: "update"})
	}
	for i := range 200 {
		add(10000 + i)
	}
	for _, rec := range r.Select(func(rec *Record) bool { return rec.Wire != nil }) {
		if string(rec.Wire.Request) != fmt.Sprint("request ", rec.Rev) {
			t.Errorf("revision %d has the bodies of %s", rec.Rev, rec.Wire.Request)
		}
	}
}

// TestCommitted: the end of a write's last hop.
func TestCommitted(t *testing.T) {
	r := NewRecorder(10)
	rec := Record{UID: "a", Rev: 7, Verb: "update", Start: time.Unix(100, 0)}
	rec.Took[Authorize], rec.Took[Commit] = time.Second, 2*time.Second
	r.Add(rec)
	r.Add(Record{UID: "a", Rev: 7, Verb: Reconcile, Start: time.Unix(500, 0)})
	if at, known := r.Committed("a", 7); !known || !at.Equal(time.Unix(103, 0)) {
		t.Error(at, known)
	}
	if _, known := r.Committed("a", 8); known {
		t.Error("a write that is not recorded")
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"kubectl/v1.37 (linux/amd64)": "kubectl/v1.37 (linux/amd64)",
		"a\x1b[31mred\n\x00":          "a?[31mred??",
		"\u202eright to left":         "?right to left",
		"größe":                       "größe",
		"\xff\xfe":                    "??",
		strings.Repeat("ö", 200):      strings.Repeat("ö", 10),
		strings.Repeat("a", 200):      strings.Repeat("a", 20),
	} {
		limit := 256
		if len(in) > 100 {
			limit = 20
		}
		if got := Printable(in, limit); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// TestProcess: a record says who has made it.
func TestProcess(t *testing.T) {
	r := NewRecorder(10)
	r.Process = "server-1"
	r.Add(Record{UID: "a", Rev: 1})
	r.Add(Record{UID: "a", Rev: 2, Process: "n1"})
	if got := r.Of("a"); got[0].Process != "server-1" || got[1].Process != "n1" {
		t.Errorf("%+v", got)
	}
}

// BenchmarkAdd is what one record costs when the recorder is full.
func BenchmarkAdd(b *testing.B) {
	r := NewRecorder(8192)
	uids := make([]types.UID, 20000)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprintf("%036d", i))
		r.Add(Record{UID: uids[i], Rev: 1, Verb: "create", Resource: "pods"})
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		r.Add(Record{UID: uids[n%len(uids)], Rev: int64(n), Verb: "create", Resource: "pods", User: "tester"})
	}
}

// BenchmarkSelect is what it costs to look at all records.
func BenchmarkSelect(b *testing.B) {
	r := NewRecorder(8192)
	for i := range 8192 {
		r.Add(Record{UID: types.UID(fmt.Sprintf("%036d", i)), Rev: 1, Verb: "create", Resource: "pods"})
	}
	for b.Loop() {
		r.Select(func(rec *Record) bool { return rec.CauseUID == "none" })
	}
}
