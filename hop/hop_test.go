package hop

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRecorderForgetsTheOldest(t *testing.T) {
	r := NewRecorder(3)
	for i := range int64(5) {
		r.Add(Record{UID: "a", Rev: i})
	}
	var revs []int64
	for _, rec := range r.Of("a") {
		revs = append(revs, rec.Rev)
	}
	if len(revs) != 3 || revs[0] != 2 || revs[1] != 3 || revs[2] != 4 || r.Len() != 3 {
		t.Fatalf("kept %v, want the last three in order", revs)
	}
	if got := r.Of("b"); got != nil {
		t.Fatalf("records of an unknown object: %v", got)
	}
}

func TestClockGivesEachHopItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		c.Done(Schema) // before Begin: nothing
		c.Begin(time.Now())
		time.Sleep(2 * time.Millisecond)
		c.Done(Authenticate)
		time.Sleep(5 * time.Millisecond)
		c.Done(Commit)
		if c.Record.Took[Authenticate] != 2*time.Millisecond || c.Record.Took[Commit] != 5*time.Millisecond || c.Record.Took[Schema] != 0 {
			t.Fatalf("took %v", c.Record.Took)
		}
	})
}

func TestNames(t *testing.T) {
	if Client.String() != "client" || Network.String() != "network" || int(Network) != Count {
		t.Fatal("the twelve hops have lost their names or number")
	}
}
