package trace

import (
	"strings"
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

// TestSessionsOfOthersDoNotMoveTheBeginning checks that a request of another user with the same session, which he may have heard of, does
// not change what a trace shows of its own client.
func TestSessionsOfOthersDoNotMoveTheBeginning(t *testing.T) {
	write := hop.Record{UID: "u", Rev: 7, Verb: "create", Resource: "configmaps", Namespace: "default", Name: "a", User: "alice", Code: 201,
		Start: epoch, Origin: &hop.Origin{Session: "s", Command: "kubectl create", Began: epoch.Add(-time.Second)}}
	write.Took[hop.Commit] = time.Millisecond
	other := hop.Record{Verb: "create", Resource: "configmaps", Namespace: "other", Name: "b", Code: 401, Refused: hop.Authenticate,
		Start: epoch.Add(-50 * time.Minute), Origin: &hop.Origin{Session: "s"}}
	got := Build([]hop.Record{other, write}, Ref{Resource: "configmaps", Namespace: "default", Name: "a"}, epoch.Add(time.Second))
	if got == nil || !got.Start.Equal(epoch.Add(-time.Second)) || got.Spans[0].Took != time.Second {
		t.Errorf("%+v", got)
	}
}

// TestSlowClientDoesNotMakeATraceLonger checks that the delivery to a client that takes an hour to read does not bring everything of that
// hour into a trace.
func TestSlowClientDoesNotMakeATraceLonger(t *testing.T) {
	own := hop.Record{UID: "u", Rev: 7, Verb: "create", Resource: "configmaps", Namespace: "default", Name: "a", User: "alice",
		Start: epoch}
	own.Took[hop.Commit] = time.Millisecond
	slow := hop.Record{UID: "u", Rev: 7, Verb: hop.Deliver, Resource: "configmaps", Namespace: "default", Name: "a", User: "mallory",
		CauseUID: "u", CauseRev: 7, Start: epoch.Add(time.Millisecond)}
	slow.Took[hop.Watch] = time.Hour
	later := hop.Record{UID: "v", Rev: 9, Verb: "create", Resource: "pods", Namespace: "default", Name: "later", CauseUID: "u", CauseRev: 7,
		User: "system:serviceaccount:kube-system:x", Start: epoch.Add(30 * time.Minute)}
	later.Took[hop.Commit] = time.Millisecond
	got := Build([]hop.Record{own, slow, later}, Ref{Resource: "configmaps", Namespace: "default", Name: "a"}, epoch.Add(2*time.Hour))
	if got == nil || got.Later != 1 {
		t.Errorf("%+v", got)
	}
}

// TestStuckEndsWithAnErrorOnce checks the sentence about a trace in which nothing is under way and the last work has failed: of the error
// nothing is in it, so nothing of it is put there for those who may not see it.
func TestStuckEndsWithAnErrorOnce(t *testing.T) {
	pod := hop.Record{UID: "p", Rev: 1, Verb: "create", Resource: "pods", Namespace: "default", Name: "a", User: "alice", Start: epoch}
	pod.Took[hop.Commit] = time.Millisecond
	failed := hop.Record{UID: "p", Rev: 1, Verb: hop.Reconcile, Resource: "pods", Namespace: "default", Name: "a", User: "one",
		CauseUID: "p", CauseRev: 1, Start: epoch.Add(time.Second), Error: "the other-object is missing"}
	failed.Took[hop.Control] = time.Minute
	good := failed
	good.User, good.Error, good.Start = "two", "", epoch.Add(2*time.Second)
	good.Took[hop.Control] = time.Millisecond
	got := Build([]hop.Record{pod, failed, good}, Ref{Resource: "pods", Namespace: "default", Name: "a"}, epoch.Add(2*time.Minute))
	reader := everything()
	reader.MayGetAll = nil
	got.Hide(reader)
	if !strings.HasPrefix(got.Stuck, "nothing is under way") || !strings.HasSuffix(got.Stuck, " ago") {
		t.Errorf("%q", got.Stuck)
	}
}

func TestAuditID(t *testing.T) {
	write := hop.Record{UID: "u", Rev: 7, Verb: "create", Resource: "pods", Namespace: "d", Name: "a", User: "alice", Start: epoch,
		Origin: &hop.Origin{AuditID: "4f5d"}}
	got := Build([]hop.Record{write}, Ref{Resource: "pods", Namespace: "d", Name: "a"}, epoch.Add(time.Second))
	if id := got.Spans[0].AuditID; id != "4f5d" {
		t.Errorf("the audit ID is %q", id)
	}
	got.Hide(Reader{MayGet: func(Ref) bool { return false }, MayGetNode: func(string) bool { return false }})
	if id := got.Spans[0].AuditID; id != "" {
		t.Errorf("who may not get the object sees the audit ID %q", id)
	}
}
