package waterfall

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proa.dev/hop"
	"proa.dev/internal/textcase"
	"proa.dev/trace"
)

var epoch = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

func record(verb, resource, name, user string, start time.Duration, change func(*hop.Record)) hop.Record {
	r := hop.Record{Verb: verb, Resource: resource, Namespace: "shop", Name: name, User: user, Start: epoch.Add(start)}
	change(&r)
	return r
}

// records returns the records of a Pod that waits for its image, or has got it.
func records(isOpen bool) []hop.Record {
	const ms = time.Millisecond
	out := []hop.Record{
		record("create", "pods", "web", "alice", 0, func(r *hop.Record) {
			r.UID, r.Rev, r.Origin = "p", 1, &hop.Origin{Command: "kubectl run", Session: "s"}
			r.Took[hop.Authenticate], r.Took[hop.Authorize], r.Took[hop.Mutate], r.Took[hop.Commit] = 20*ms, 10*ms, 120*ms, 50*ms
			r.Wait[hop.Authorize] = 9 * ms
			r.Steps = []hop.Step{{Hop: hop.Mutate, Name: "defaults.example.com", After: 30 * ms, Took: 118 * ms, Detail: "patched"}}
		}),
		record(hop.ScheduleAttempt, "pods", "web", "system:kube-scheduler", 205*ms, func(r *hop.Record) {
			r.UID, r.Rev, r.CauseUID, r.CauseRev = "p", 1, "p", 1
			r.Took[hop.Schedule], r.Wait[hop.Schedule] = 300*ms, 250*ms
			r.Steps = []hop.Step{{Hop: hop.Schedule, Name: "queue", Took: 250 * ms, Wait: 250 * ms}}
		}),
		record("create", "pods", "web", "system:kube-scheduler", 460*ms, func(r *hop.Record) {
			r.UID, r.Rev, r.CauseUID, r.CauseRev, r.Subresource = "p", 2, "p", 1, "binding"
			r.Took[hop.Commit] = 40 * ms
		}),
		record(hop.Sandbox, "pods", "web", "system:node:one", 510*ms, func(r *hop.Record) {
			r.UID, r.Rev, r.CauseUID, r.CauseRev = "p", 2, "p", 2
			r.Took[hop.Node] = 310 * ms
		}),
		record(hop.Pull, "pods", "web", "system:node:one", 510*ms, func(r *hop.Record) {
			r.UID, r.Rev, r.CauseUID, r.CauseRev, r.Open = "p", 2, "p", 2, isOpen
			r.Took[hop.Node], r.Wait[hop.Node] = 1200*ms, 400*ms
			r.Steps = []hop.Step{{Hop: hop.Node, Name: "image of main", Took: 1200 * ms, Detail: "\x1b[31mnginx:1.27\nEVIL"}}
		}),
	}
	if isOpen {
		out[4].Error = "dial tcp: \x1b]0;owned\x07 refused"
		return out
	}
	return append(out, record("update", "pods", "web", "system:node:one", 1720*ms, func(r *hop.Record) {
		r.UID, r.Rev, r.CauseUID, r.CauseRev, r.Subresource, r.Ready = "p", 3, "p", 2, "status", true
		r.Took[hop.Commit] = 30 * ms
	}))
}

// escaping stands for the function of the command line that makes texts safe.
func escaping(s string) string { return strings.NewReplacer("\x1b", `\x1b`, "\x07", `\a`).Replace(s) }

func TestWrite(t *testing.T) {
	pod := trace.Ref{Resource: "pods", Namespace: "shop", Name: "web"}
	done := trace.Build(records(false), pod, epoch.Add(time.Minute))
	open := trace.Build(records(true), pod, epoch.Add(5*time.Second))
	hidden := trace.Build(records(false), pod, epoch.Add(time.Minute))
	hidden.Hide(trace.Reader{MayGet: func(trace.Ref) bool { return false }, MayGetNode: func(string) bool { return false }})
	hidden.Unseen, hidden.Dropped, hidden.Later = []string{"server two"}, 7, 3
	for name, c := range map[string]struct {
		t *trace.Trace
		o Options
	}{
		"done":   {done, Options{}},
		"narrow": {done, Options{Width: 70, ASCII: true, All: true}},
		"color":  {open, Options{Width: 80, Color: true}},
		"open":   {open, Options{}},
		"hidden": {hidden, Options{}},
		"empty":  {&trace.Trace{Start: epoch}, Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			c.o.Printable = escaping
			Write(&out, c.t, c.o)
			file := filepath.Join("testdata", name+".txt")
			got := out.String()
			if strings.Contains(got, "\x07") || !c.o.Color && strings.Contains(got, "\x1b") || strings.Contains(got, "\x1b[31mnginx") {
				t.Errorf("a text of the cluster reaches the terminal as it is:\n%q", got)
			}
			if textcase.Update() {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("got\n%s\nwant\n%s%v", got, want, err)
			}
		})
	}
}

func TestWriteBodies(t *testing.T) {
	rec := records(false)
	rec[0].Wire = &hop.Wire{}
	rec[0].Wire.SetRequest([]byte(`{"kind":"Pod","note":"` + "\x1b" + `"}`))
	rec[0].Wire.SetResponse([]byte("\xff\xfe"))
	x := trace.NewIndex(rec)
	tr := x.Trace(trace.Ref{Resource: "pods", Namespace: "shop", Name: "web"}, epoch.Add(time.Minute))
	x.AddBodies(tr)
	var out strings.Builder
	WriteBodies(&out, tr, escaping)
	got := out.String()
	if !strings.Contains(got, `"kind":"Pod"`) || strings.Contains(got, "\x1b") || !strings.Contains(got, "answer: 2 bytes") ||
		strings.Contains(got, "in the server's process") {
		t.Errorf("got %q", got)
	}
	out.Reset()
	rec[0].Wire = &hop.Wire{InProcess: true, Request: []byte("p"), RequestSize: 1, RequestType: "protobuf", ResponseSize: 50000,
		ResponseType: "application/vnd.kubernetes.protobuf", RequestJSON: func(b []byte) ([]byte, error) {
			return []byte(`{"kind":"Binding","was":"` + string(b) + `"}`), nil
		}}
	tr = x.Trace(trace.Ref{Resource: "pods", Namespace: "shop", Name: "web"}, epoch.Add(time.Minute))
	x.AddBodies(tr)
	WriteBodies(&out, tr, escaping)
	for _, want := range []string{"The caller is in the server's process: no bytes were sent.", "request: 28 bytes of application/json\n",
		`"was": "p"`, "answer: 50000 bytes of application/vnd.kubernetes.protobuf\n", "more than 16384 bytes is not kept"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
	tr = x.Trace(trace.Ref{Resource: "pods", Namespace: "shop", Name: "web"}, epoch.Add(time.Minute))
	tr.Hide(trace.Reader{MayGet: func(trace.Ref) bool { return false }, MayGetNode: func(string) bool { return false }})
	x.AddBodies(tr)
	for _, s := range tr.Spans {
		if s.Wire != nil {
			t.Errorf("a hidden span has bodies: %+v", s)
		}
	}
}
