package watchdelivery

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/watch"
)

// event returns the event of the write of a ConfigMap at a revision.
func event(rev int64) watch.Item {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", UID: "u"}}
	return watch.Item{As: watch.Modified, Event: &watch.Event{Type: watch.Modified, Rev: rev, Now: watch.NewEntry("/c", o, rev)}}
}

// addWrite records the write at a revision, which takes a millisecond.
func addWrite(r *hop.Recorder, rev int64) {
	rec := hop.Record{UID: "u", Rev: rev, Verb: "update", Resource: "configmaps", Namespace: "d", Name: "c", Start: time.Now()}
	rec.Took[hop.Commit] = time.Millisecond
	r.Add(rec)
}

func deliveries(r *hop.Recorder) []hop.Record {
	return r.Select(func(r *hop.Record) bool { return r.Verb == hop.Deliver })
}

func TestDeliveryIsRecordedWithItsWriteAndUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(100)
		var l Limiter
		w := l.Watch(records, gr.ConfigMaps, "bob", 6)
		addWrite(records, 7)
		time.Sleep(4 * time.Millisecond)
		w.Sent([]watch.Item{event(6), event(7), event(8)})
		got := deliveries(records)
		if len(got) != 2 {
			t.Fatalf("%+v", got)
		}
		first := got[0]
		if first.UID != "u" || first.Rev != 7 || first.CauseUID != "u" || first.CauseRev != 7 || first.User != "bob" ||
			first.Resource != "configmaps" || first.Namespace != "d" || first.Name != "c" || first.Took[hop.Watch] != 3*time.Millisecond {
			t.Errorf("%+v", first)
		}
		// The write 8 is not recorded yet: only the moment of the delivery is known.
		if second := got[1]; second.Rev != 8 || !second.Start.Equal(time.Now()) || second.Took[hop.Watch] != 0 {
			t.Errorf("%+v", second)
		}
	})
}

func TestFewDeliveriesOfAWriteAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(1000)
		var l Limiter
		for i := range 100 {
			l.Watch(records, gr.ConfigMaps, fmt.Sprint("user-", i), 0).Sent([]watch.Item{event(7)})
		}
		if got := deliveries(records); len(got) != maxPerWrite || got[0].User != "user-0" {
			t.Errorf("%d deliveries, of %+v", len(got), got)
		}
		// The slot of the write has another one now.
		w := l.Watch(records, gr.ConfigMaps, "late", 0)
		w.Sent([]watch.Item{event(7 + slots)})
		w.Sent([]watch.Item{event(7)})
		if got := deliveries(records); len(got) != maxPerWrite+1 {
			t.Errorf("%d deliveries", len(got))
		}
	})
}

func TestFewDeliveriesInASecondAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(1 << 16)
		var l Limiter
		var watches []*Watch // of so many users that each of them has a part of the budget left
		for i := range 100 {
			watches = append(watches, l.Watch(records, gr.ConfigMaps, fmt.Sprint("user-", i), 0))
		}
		w := watches[0]
		rev := int64(0)
		for range 60 * 1000 {
			rev++
			watches[rev%100].Sent([]watch.Item{event(rev)})
			time.Sleep(time.Millisecond)
		}
		const most = int((time.Minute+burst)/interval) + 1
		if got := len(deliveries(records)); got > most || got < most-2 {
			t.Errorf("%d deliveries in a minute, want about %d", got, most)
		}
		// While there is no budget, a delivery costs no memory.
		items := []watch.Item{event(rev)}
		if n := testing.AllocsPerRun(100, func() { w.Sent(items) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		// A clock that was set back does not stop the recording.
		later := time.Now().Add(time.Hour)
		if !l.all.Spend(interval, burst, later) || !w.budget.Spend(userInterval, burst, later) {
			t.Fatal("nothing is left after an hour")
		}
		before := len(deliveries(records))
		w.Sent([]watch.Item{event(rev + 1)})
		if got := len(deliveries(records)); got != before+1 {
			t.Errorf("%d deliveries, want %d", got, before+1)
		}
	})
}

func TestWatchesOfNodesAndRoutineWritesAreNotRecorded(t *testing.T) {
	records := hop.NewRecorder(100)
	var l Limiter
	for _, w := range []*Watch{
		l.Watch(nil, gr.ConfigMaps, "bob", 0),
		l.Watch(records, gr.Pods, "system:node:one", 0),
		l.Watch(records, gr.Leases, "bob", 0),
		l.Watch(records, gr.Events, "bob", 0),
		l.Watch(records, schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "bob", 0),
		l.Watch(records, gr.Nodes, "bob", 0),
	} {
		w.Sent([]watch.Item{event(7)})
	}
	var many []watch.Item
	for i := range int64(maxTogether + 1) {
		many = append(many, event(10+i))
	}
	l.Watch(records, gr.ConfigMaps, "bob", 0).Sent(many)
	if got := deliveries(records); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestOneUserLeavesDeliveriesToOthers checks that whoever writes all the time and watches that does not hide the deliveries to others.
func TestOneUserLeavesDeliveriesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(1 << 16)
		var l Limiter
		flood := l.Watch(records, gr.ConfigMaps, "mallory", 0)
		other := l.Watch(records, gr.ConfigMaps, "alice", 0)
		for other.budget == flood.budget { // by chance they share a part
			l = Limiter{}
			flood, other = l.Watch(records, gr.ConfigMaps, "mallory", 0), l.Watch(records, gr.ConfigMaps, "alice", 0)
		}
		for rev := range int64(60 * 1000) {
			flood.Sent([]watch.Item{event(rev + 1)})
			time.Sleep(time.Millisecond)
		}
		const most = int((time.Minute+burst)/userInterval) + 1
		if got := len(deliveries(records)); got > most || got < most-2 {
			t.Errorf("%d deliveries to one user in a minute, want about %d", got, most)
		}
		for rev := range int64(5) {
			other.Sent([]watch.Item{event(rev + 100000)})
		}
		got := records.Select(func(r *hop.Record) bool { return r.Verb == hop.Deliver && r.User == "alice" })
		if len(got) != 5 {
			t.Errorf("%d deliveries to another user are recorded, want 5", len(got))
		}
	})
}

// TestSlowClientDoesNotCountAsTimeOfTheServer checks that the time for which a client does not read is waiting, in the delivery itself and
// in those behind it, and that the distribution of times at hop 8 does not have it.
func TestSlowClientDoesNotCountAsTimeOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(100)
		var l Limiter
		w := l.Watch(records, gr.ConfigMaps, "bob", 0)
		send := func(rev int64, blocked time.Duration) {
			w.Sending()
			time.Sleep(blocked)
			w.Sending() // another event of the same kind does not begin it again
			w.Sent([]watch.Item{event(rev)})
		}
		addWrite(records, 1) // is committed after a millisecond
		time.Sleep(3 * time.Millisecond)
		send(1, 0)
		addWrite(records, 2)
		time.Sleep(3 * time.Millisecond)
		go func() {
			time.Sleep(time.Minute - 2*time.Millisecond)
			addWrite(records, 3)
		}()
		send(2, time.Minute)
		time.Sleep(5 * time.Millisecond) // the server is slow
		send(3, time.Second)
		synctest.Wait()
		want := [][2]time.Duration{{2 * time.Millisecond, 0}, {time.Minute + 2*time.Millisecond, time.Minute},
			{time.Second + 6*time.Millisecond, time.Second + time.Millisecond}}
		for i, r := range deliveries(records) {
			if got := [2]time.Duration{r.Took[hop.Watch], r.Wait[hop.Watch]}; got != want[i] {
				t.Errorf("delivery %d took and waited %v, want %v", i+1, got, want[i])
			}
		}
		if d := records.Durations(hop.Watch); d.Count != 3 || math.Round(d.Seconds*1e6) != 9000 {
			t.Errorf("hop 8 has taken %v s in %d deliveries", d.Seconds, d.Count)
		}
	})
}
