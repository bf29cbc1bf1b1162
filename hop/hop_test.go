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
		c.Waited(Commit, time.Millisecond)
		before := c.Elapsed()
		time.Sleep(ShortestWait - 1)
		c.WaitedSince(Mutate, before) // too short
		time.Sleep(3 * time.Millisecond)
		c.WaitedSince(Mutate, before)
		c.Refuse(Mutate)
		if c.Record.Wait[Commit] != time.Millisecond || c.Record.Wait[Mutate] != 3*time.Millisecond+ShortestWait-1 ||
			c.Record.Took[Mutate] != c.Record.Wait[Mutate] || c.Record.Refused != Mutate {
			t.Fatalf("waited %v of %v, refused by %v", c.Record.Wait, c.Record.Took, c.Record.Refused)
		}
		if c.Record.Took[Authenticate] != 2*time.Millisecond || c.Record.Took[Commit] != 5*time.Millisecond || c.Record.Took[Schema] != 0 {
			t.Fatalf("took %v", c.Record.Took)
		}
	})
}

// TestSteps: a record keeps the first steps, and the last one that failed.
func TestSteps(t *testing.T) {
	var none *Clock
	none.AddStep(Step{Name: "x"})
	if none.Elapsed() != 0 || none.Steps() != 0 {
		t.Error("a nil clock runs")
	}
	var c Clock
	if c.AddStep(Step{Name: "x"}); c.Steps() != 0 {
		t.Error("a clock that does not run has a step")
	}
	c.Begin(time.Now())
	for i := range 2 * MaxSteps {
		c.AddStep(Step{Name: "plugin", Failed: i == 100, Took: time.Duration(i)})
	}
	last := c.Record.Steps[MaxSteps-1]
	if len(c.Record.Steps) != MaxSteps || last.Took != 100 || !last.Failed {
		t.Errorf("%d steps, the last is %+v", len(c.Record.Steps), last)
	}
	c.Record.Origin = &Origin{Agent: "kubectl"}
	c.Record.CauseRev = 3
	c.Restart(time.Now())
	if c.Steps() != 0 || c.Record.Origin.Agent != "kubectl" || c.Record.CauseRev != 3 || !c.IsRunning() {
		t.Errorf("restarted: %+v", c.Record)
	}
}

func TestNames(t *testing.T) {
	if Client.String() != "client" || Network.String() != "network" || int(Network) != Count || Hop(13).String() != "" {
		t.Fatal("the twelve hops have lost their names or number")
	}
}
