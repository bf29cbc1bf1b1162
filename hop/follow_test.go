package hop

import "testing"

func TestFollowerGetsWhatIsAdded(t *testing.T) {
	r := NewRecorder(100)
	r.Process = "s1"
	r.Add(Record{UID: "before", Verb: "create"})
	var dropped []Record
	records, stop := r.Follow(2, func(rec *Record) { dropped = append(dropped, *rec) })
	r.Add(Record{UID: "open", Verb: Pull, Open: true})
	r.Add(Record{UID: "lease", Verb: "update", Group: "coordination.k8s.io", Resource: "leases"})
	r.Restore(Record{UID: "restored", Verb: "create"})
	r.Add(Record{UID: "a", Verb: "create", Wire: &Wire{}})
	r.Update(Record{UID: "open", Verb: Pull, Process: "node n1"})
	for range 3 {
		r.Add(Record{UID: "b", Verb: "create"}) // nobody reads: it must not block
	}
	stop()
	r.Add(Record{UID: "after", Verb: "create"})
	if a, b := <-records, <-records; a.UID != "a" || a.Process != "s1" || a.Wire != nil || b.UID != "open" || b.Process != "node n1" {
		t.Errorf("the follower got %+v and %+v", a, b)
	}
	if len(dropped) != 3 || dropped[0].UID != "b" || len(records) != 0 {
		t.Errorf("%d records were dropped and %d are left, want 3 and none", len(dropped), len(records))
	}
}

func TestFollowingNobody(t *testing.T) {
	var r *Recorder
	records, stop := r.Follow(1, nil)
	r.Add(Record{UID: "a"})
	stop()
	if len(records) != 0 {
		t.Error("a recorder that is switched off has told a record")
	}
	on := NewRecorder(100)
	rec := Record{UID: "a", Verb: "create"}
	if n := testing.AllocsPerRun(100, func() { on.tell(&rec) }); n != 0 {
		t.Errorf("telling nobody costs %v allocations", n)
	}
}
