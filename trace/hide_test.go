package trace

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// TestHideStuckThatWasDropped: what a trace is stuck at is hidden from a reader who may not get its object, also when the trace has so
// many spans that the one of it was left out.
func TestHideStuckThatWasDropped(t *testing.T) {
	const secret = "the-secret-pod"
	for what, last := range map[string]hop.Record{
		"open":   {Verb: hop.Pull, Open: true, Error: "no such image: " + secret},
		"failed": {Verb: "create", Code: 422, Error: secret + " is wrong"},
	} {
		t.Run(what, func(t *testing.T) {
			records := []hop.Record{{UID: "d", Rev: 1, Verb: "create", Group: "apps", Resource: "deployments", Namespace: "shop",
				Name: "web", User: "alice", Start: epoch}}
			for i := 2; i < maxSpans+500; i++ {
				records = append(records, hop.Record{UID: types.UID(fmt.Sprint("u", i)), Rev: int64(i), Verb: "create",
					Resource: "configmaps", Namespace: "shop", Name: fmt.Sprint("c", i),
					User: "system:serviceaccount:kube-system:x", CauseUID: "d", CauseRev: 1,
					Start: epoch.Add(time.Duration(i) * time.Millisecond)})
			}
			last.UID, last.Resource, last.Namespace, last.Name, last.User = "s", "pods", "shop", secret, "system:node:n1"
			last.CauseUID, last.CauseRev, last.Start = "d", 1, epoch.Add(time.Minute)
			for i := range records {
				records[i].Took[hop.Commit] = time.Microsecond
			}
			last.Took[hop.Node] = time.Microsecond
			records = append(records, last)
			ready := last // something later is on the critical path instead
			ready.UID, ready.Resource, ready.Name, ready.Verb, ready.Error, ready.Code = "c", "configmaps", "later", hop.Sandbox, "", 0
			ready.Start = epoch.Add(2 * time.Minute)
			records = append(records, ready)
			web := Ref{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}
			now := epoch.Add(time.Hour)
			x := NewIndex(records)
			got := x.Trace(web, now)
			if !strings.Contains(got.Stuck, secret) {
				t.Fatalf("it is stuck at %q", got.Stuck)
			}
			for _, s := range got.Spans {
				if s.ID == got.StuckSpan {
					t.Fatal("the span was not dropped")
				}
			}
			reader := everything()
			reader.MayGet = func(r Ref) bool { return r.Resource != "pods" }
			got.Hide(reader)
			if got.Stuck == "" || strings.Contains(got.Stuck+got.Summary, secret) {
				t.Errorf("the reader sees %q, %q", got.Stuck, got.Summary)
			}
			if recent := x.Recent("", 1, now, reader); len(recent) != 1 || strings.Contains(recent[0].Stuck, secret) {
				t.Errorf("the list shows %+v", recent)
			}
		})
	}
}

// TestBodiesOfTheRightRequest: the bodies of a request are shown with its own span, and with no other one that has the same ID.
func TestBodiesOfTheRightRequest(t *testing.T) {
	other := hop.Record{UID: "s", Rev: 1, Verb: "update", Resource: "secrets", Namespace: "shop", Name: "key", User: "bob", Start: epoch}
	own := hop.Record{UID: "p", Rev: 2, Verb: "create", Resource: "pods", Namespace: "shop", Name: "web", User: "alice",
		Start: epoch.Add(time.Second), Origin: &hop.Origin{Session: "x"}}
	before := own
	before.UID, before.Rev, before.Name, before.Start = "q", 1, "first", epoch
	own.Took[hop.Commit] = time.Millisecond
	for _, r := range []*hop.Record{&own, &other} {
		r.Wire = &hop.Wire{}
		r.Wire.SetRequest([]byte("body of " + r.Name))
	}
	x := NewIndex([]hop.Record{before, own, other})
	build := func() *Trace {
		return x.Trace(Ref{Resource: "pods", Namespace: "shop", Name: "web"}, epoch.Add(time.Minute))
	}
	shown := func(tr *Trace) (out []string) {
		x.AddBodies(tr)
		for _, s := range tr.Spans {
			if s.Wire != nil {
				out = append(out, s.Name+": "+s.Wire.Request.Text)
			}
		}
		return out
	}
	if got := shown(build()); len(got) != 1 || got[0] != "create pods: body of web" {
		t.Errorf("%q", got)
	}
	for _, id := range []string{RecordID(&other), RecordID(&own)} {
		tr := build()
		for i := range tr.Spans {
			tr.Spans[i].ID = id
		}
		if got := shown(tr); len(got) > 1 || len(got) == 1 && got[0] != "create pods: body of web" {
			t.Errorf("with the ID of another span: %q", got)
		}
		if tr.Spans[0].HopName != "client" || len(tr.Spans) < 3 {
			t.Fatalf("the trace has not the spans of client, request and hop: %+v", tr.Spans)
		}
	}
}

// TestReconcileErrorsNameOthers: the error of a reconcile may name other objects than the one that its span is about, so only those who
// may get everything see all of it, in spans, in the sentence about what is stuck, and in lists.
func TestReconcileErrorsNameOthers(t *testing.T) {
	const secret = "another-tenant"
	for _, c := range []struct{ text, seen string }{
		{`Forbidden on pods: pods "` + secret + `" is forbidden: exceeded quota`, "Forbidden on pods"},
		{"Conflict", "Conflict"},
		{secret + ": not found", "failed"},
		{`pods "` + secret + `" not found`, "failed"},
		{"NotFound on " + secret + "/" + secret + ": gone", "failed"},
		{"the volume of " + secret, "failed"},
	} {
		records := []hop.Record{{UID: "d", Rev: 1, Verb: "create", Group: "apps", Resource: "deployments", Namespace: "shop",
			Name: "web", User: "alice", Start: epoch}}
		records[0].Took[hop.Commit] = time.Millisecond
		failed := hop.Record{UID: "d", Rev: 1, CauseUID: "d", CauseRev: 1, Verb: hop.Reconcile, Group: "apps", Resource: "deployments",
			Namespace: "shop", Name: "web", User: "deployment", Start: epoch.Add(time.Second), Error: c.text}
		failed.Took[hop.Watch], failed.Took[hop.Control] = time.Millisecond, time.Millisecond
		failed.Steps = []hop.Step{{Hop: hop.Control, Name: "write", Failed: true}}
		x := NewIndex(append(records, failed))
		web := Ref{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}
		now := epoch.Add(time.Minute)
		errorsOf := func(tr *Trace) (out []string) {
			for _, s := range tr.Spans {
				if s.Error != "" {
					out = append(out, s.Error)
				}
			}
			return out
		}

		all := x.Trace(web, now)
		all.Hide(everything())
		if got := errorsOf(all); len(got) < 2 || !strings.HasSuffix(all.Stuck, c.text) || got[0] != c.text {
			t.Errorf("who may get everything sees %q and %q", got, all.Stuck)
		}
		reader := everything()
		reader.MayGetAll = func() bool { return false }
		few := x.Trace(web, now)
		few.Hide(reader)
		for _, got := range errorsOf(few) {
			if got != c.seen {
				t.Errorf("of %q others see %q", c.text, got)
			}
		}
		list := x.Recent("", 1, now, reader)
		for _, tr := range append(list, few) {
			if strings.Contains(tr.Stuck, secret) || !strings.HasSuffix(tr.Stuck, ": "+c.seen) {
				t.Errorf("of %q others see %q", c.text, tr.Stuck)
			}
		}
	}
}

// TestHideWhoWatches: whoever may get an object does not learn the names of service accounts elsewhere that watch it.
func TestHideWhoWatches(t *testing.T) {
	write := hop.Record{UID: "c", Rev: 1, Verb: "create", Resource: "configmaps", Namespace: "shop", Name: "a", User: "alice", Start: epoch}
	write.Took[hop.Commit] = time.Millisecond
	deliver := hop.Record{UID: "c", Rev: 1, Verb: hop.Deliver, Resource: "configmaps", Namespace: "shop", Name: "a",
		User: "system:serviceaccount:vault:spy", CauseUID: "c", CauseRev: 1, Start: epoch.Add(time.Millisecond)}
	deliver.Took[hop.Watch] = time.Millisecond
	for _, may := range []bool{false, true} {
		got := Build([]hop.Record{write, deliver}, Ref{Resource: "configmaps", Namespace: "shop", Name: "a"}, epoch.Add(time.Second))
		reader := everything()
		reader.MayGet = func(r Ref) bool {
			return r.Resource == "configmaps" || may && r == Ref{Resource: "serviceaccounts", Namespace: "vault", Name: "spy"}
		}
		got.Hide(reader)
		if text := fmt.Sprint(got.Spans); strings.Contains(text, "vault:spy") != may || got.Hidden != 0 {
			t.Errorf("may %v: %s", may, text)
		}
	}
}
