package httpapi

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/hop"
)

// TestRecordNamesTheBeginningOfTheCommand checks that the record of a write says when the command of kubectl sent its first request, also
// when that was no write.
func TestRecordNamesTheBeginningOfTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 10)
		post := func(user, name string, header ...string) hop.Record {
			t.Helper()
			w := httptest.NewRecorder()
			header = append(header, "Content-Type: application/json")
			r.send(w, user, "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"`+name+`"}}`), header...)
			got := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Verb == "create" && rec.Name == name })
			if len(got) != 1 || got[0].Origin == nil {
				t.Fatalf("%d %s: %+v", w.Code, w.Body, got)
			}
			return got[0]
		}
		begin := time.Now()
		r.send(httptest.NewRecorder(), "alice", "GET", "/api", nil, "Kubectl-Session: one")
		time.Sleep(time.Second)
		r.send(httptest.NewRecorder(), "alice", "GET", configMapsPath+"/a", nil, "Kubectl-Session: one")
		time.Sleep(time.Second)
		if rec := post("alice", "a", "Kubectl-Session: one"); !rec.Origin.Began.Equal(begin) || rec.Origin.Session != "one" {
			t.Errorf("%+v", rec.Origin)
		}
		if rec := post("bob", "b", "Kubectl-Session: one"); !rec.Origin.Began.Equal(rec.Start) {
			t.Errorf("a session of another user: %+v", rec.Origin)
		}
		if rec := post("alice", "c"); !rec.Origin.Began.IsZero() {
			t.Errorf("a request without a session: %+v", rec.Origin)
		}
	})
}
