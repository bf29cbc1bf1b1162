package chrometrace

import (
	"encoding/json"
	"testing"
	"time"

	"proa.dev/trace"
)

// TestJSON checks that the file has an event for each span, within its process and thread, an arrow for each cause, and nothing of a
// hidden span but its times.
func TestJSON(t *testing.T) {
	begin := time.Unix(100, 0)
	end := begin.Add(3 * time.Millisecond)
	tr := &trace.Trace{Start: begin, End: &end, Spans: []trace.Span{
		{ID: "a", Name: "create pods", Actor: "alice", Start: begin, Took: time.Millisecond,
			Object: trace.Ref{Resource: "pods", Name: "web"}},
		{ID: "b", Parent: "a", Hop: 7, HopName: "commit", Name: "commit", Start: begin, Took: time.Millisecond},
		{ID: "c", Links: []string{"a", "unknown"}, Hop: 11, HopName: "node", Name: "pull", Start: begin.Add(2 * time.Millisecond),
			Took: time.Millisecond, Wait: time.Microsecond, Critical: true, Error: "no"},
	}, Milestones: []trace.Milestone{{Name: "Accepted", At: time.Millisecond}}}
	data, err := JSON(tr)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Name, Ph, ID string
			Ts, Dur      float64
			Pid, Tid     int
			Args         map[string]any
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range got.TraceEvents {
		count[e.Ph]++
		switch {
		case e.Ph == "X" && e.Name == "commit" && (e.Pid != 0 || e.Tid != 1 || e.Dur != 1000):
			t.Errorf("a hop is not within its request: %+v", e)
		case e.Ph == "X" && e.Name == "pull" && (e.Pid != 11 || e.Ts != 2000 || e.Args["error"] != "no" || e.Args["critical"] != true):
			t.Errorf("the pull is %+v", e)
		}
	}
	if count["X"] != 3 || count["s"] != 1 || count["f"] != 1 || count["i"] != 1 {
		t.Errorf("the events are %v", count)
	}
}
