package trace

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// TestManyRecords checks that a trace stays small and is made in a moment however many records there are, and that its spans are whole:
// every parent and every cause that a span names is there, or was dropped.
func TestManyRecords(t *testing.T) {
	pod := Ref{Resource: "pods", Namespace: "default", Name: "a"}
	worlds := map[string]func(i int, r *hop.Record){
		"one object":           func(i int, r *hop.Record) { r.CauseUID, r.CauseRev = "p", int64(i-1) },
		"all from one write":   func(_ int, r *hop.Record) { r.CauseUID, r.CauseRev = "p", 1 },
		"each causes the next": func(i int, r *hop.Record) { r.UID, r.CauseUID, r.CauseRev = uid(i), uid(i-1), int64(i-1) },
		"causes nobody knows":  func(_ int, r *hop.Record) { r.CauseUID, r.CauseRev = "nobody", 9 },
		"deliveries and steps": func(_ int, r *hop.Record) {
			r.Verb, r.CauseUID, r.CauseRev, r.Steps = hop.Deliver, "p", 1, make([]hop.Step, 8)
		},
		"open work of the node": func(_ int, r *hop.Record) { r.Verb, r.Open, r.CauseUID, r.CauseRev = hop.Pull, true, "p", 1 },
	}
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			records := make([]hop.Record, 0, 100_000)
			for i := 1; i <= cap(records); i++ {
				r := hop.Record{UID: "p", Rev: int64(i), Verb: "update", Subresource: "status", Resource: "pods", Namespace: "default",
					Name: "a", User: "system:node:one", Start: epoch.Add(time.Duration(i) * time.Microsecond)}
				r.Took[hop.Commit] = time.Microsecond
				if i == 1 {
					r.Verb, r.Subresource, r.User = "create", "", "alice"
				} else {
					change(i, &r)
				}
				records = append(records, r)
			}
			got := Build(records, pod, epoch.Add(time.Hour))
			if got == nil || len(got.Spans) > maxSpans || got.Dropped == 0 || len(got.Critical) > 4*maxPath {
				t.Fatalf("the trace has %d spans, %d are dropped", len(got.Spans), got.Dropped)
			}
			known := map[string]bool{}
			for _, s := range got.Spans {
				if s.Parent != "" && !known[s.Parent] {
					t.Fatalf("the span %s comes before its parent", s.Name)
				}
				known[s.ID] = true
			}
			if recent := NewIndex(records).Recent("", 10, epoch.Add(time.Hour), everything()); len(recent) != 1 {
				t.Errorf("%d recent traces, want that of the Pod", len(recent))
			}
		})
	}
}

func uid(i int) types.UID {
	if i <= 1 {
		return "p"
	}
	return types.UID(fmt.Sprint("u", i))
}

// everything is a reader who may get all.
func everything() Reader {
	yes := func() bool { return true }
	return Reader{MayGet: func(Ref) bool { return true }, MayGetNode: func(string) bool { return true }, MayGetAll: yes}
}

func TestNames(t *testing.T) {
	for _, r := range []Ref{{Resource: "pods", Name: "a"}, {Group: "apps", Resource: "deployments", Name: "web.x"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "system:node"}} {
		if got, ok := ParseName(Name(r)); !ok || got != r {
			t.Errorf("%s is read as %+v", Name(r), got)
		}
	}
	for _, bad := range []string{"", "web", "pods:", ":web"} {
		if _, ok := ParseName(bad); ok {
			t.Errorf("%q is read as a name", bad)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("deployments.apps:web")
	f.Fuzz(func(t *testing.T, name string) {
		if r, ok := ParseName(name); ok {
			if again, ok := ParseName(Name(r)); !ok || again != r {
				t.Errorf("%q is read as %+v and then as %+v", name, r, again)
			}
		}
	})
}
