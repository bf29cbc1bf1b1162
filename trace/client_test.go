package trace

import (
	"testing"
	"time"

	"proa.dev/hop"
)

// TestClientSpanBeginsWithTheFirstRequest checks that hop 1 begins with the first request of kubectl's command, which may be a read.
func TestClientSpanBeginsWithTheFirstRequest(t *testing.T) {
	write := hop.Record{UID: "u", Rev: 7, Verb: "create", Resource: "configmaps", Namespace: "default", Name: "a", User: "alice", Code: 201,
		Start: epoch, Origin: &hop.Origin{Session: "s", Command: "kubectl create", Began: epoch.Add(-300 * time.Millisecond)}}
	write.Took[hop.Commit] = time.Millisecond
	got := Build([]hop.Record{write}, Ref{Resource: "configmaps", Namespace: "default", Name: "a"}, epoch.Add(time.Second))
	if got == nil || len(got.Spans) == 0 {
		t.Fatalf("%+v", got)
	}
	if s := got.Spans[0]; s.Hop != int(hop.Client) || !s.Start.Equal(write.Origin.Began) || s.Took != 300*time.Millisecond ||
		s.Name != "kubectl create" {
		t.Errorf("%+v", s)
	}
}
