package httpapi

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/hop"
)

// TestDeliveriesToWatchesAreRecorded checks that the record of a delivery names the write, and the user of the watch that got it.
// Objects that were there when the watch began are not delivered late.
func TestDeliveriesToWatchesAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 10)
		post := func(name string) {
			w := httptest.NewRecorder()
			r.send(w, "alice", "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"`+name+`"}}`),
				"Content-Type: application/json")
			if w.Code != 201 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		post("old")
		done := make(chan struct{})
		w := httptest.NewRecorder()
		go func() {
			defer close(done)
			r.send(w, "bob", "GET", configMapsPath+"?watch=true&timeoutSeconds=10", nil)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		post("new")
		<-done
		if body := w.Body.String(); !strings.Contains(body, `"old"`) || !strings.Contains(body, `"new"`) {
			t.Fatal(body)
		}
		got := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Verb == hop.Deliver })
		write := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Verb == "create" && rec.Name == "new" })
		if len(got) != 1 || len(write) != 1 {
			t.Fatalf("%d deliveries of %d writes", len(got), len(write))
		}
		if d := got[0]; d.User != "bob" || d.Name != "new" || d.Resource != "configmaps" || d.CauseUID != write[0].UID ||
			d.CauseRev != write[0].Rev || d.UID != write[0].UID || d.Rev != write[0].Rev {
			t.Errorf("%+v", d)
		}
	})
}
