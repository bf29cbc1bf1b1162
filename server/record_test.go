package server

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
)

// TestRefusalsByTheStore: a store that does not answer is recorded at hop 7, whichever hop has asked it. A request that ran out of its own
// time tells nothing about the store, and one whose client has gone is not recorded.
func TestRefusalsByTheStore(t *testing.T) {
	over, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	gone, leave := context.WithCancel(t.Context())
	leave()
	all := kinds.All()
	def := all[slices.IndexFunc(all, func(d *kind.Def) bool { return d.Group == "" && d.Plural == "configmaps" })]
	const timeout = "the timeout of the request was over before the store had answered"
	for _, c := range []struct {
		name    string
		ctx     context.Context
		refused hop.Hop
		text    string
	}{
		{"the store does not answer", t.Context(), hop.Commit, "the store is not available: " + kv.ErrUnavailable.Error() +
			"; the outcome of a write is unknown, read before trying again"},
		{"the request had no time left", over, hop.Mutate, timeout},
		{"the client has gone", gone, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Server{Config: Config{Recorder: hop.NewRecorder(100)}}
			r := &Request{Verb: "update", Def: def, Namespace: "default", Name: "a", User: &user.DefaultInfo{Name: "alice"}}
			r.Clock.Begin(time.Now())
			r.Clock.Refuse(hop.Mutate)
			s.RecordRefusal(c.ctx, r, apistatus.FromStore(kv.ErrUnavailable))
			got := s.Recorder.Select(func(*hop.Record) bool { return true })
			switch {
			case c.refused == 0 && len(got) != 0, c.refused != 0 && len(got) != 1:
				t.Errorf("there are %d records", len(got))
			case c.refused != 0 && (got[0].Refused != c.refused || got[0].Error != c.text):
				t.Errorf("the record is of %v: %s", got[0].Refused, got[0].Error)
			}
		})
	}
}
