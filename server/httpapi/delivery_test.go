package httpapi

import (
	"bytes"
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

// slowClient takes a second to read what has a text in it.
type slowClient struct {
	*httptest.ResponseRecorder
	text string
}

func (c slowClient) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) {
		time.Sleep(time.Second)
	}
	return c.ResponseRecorder.Write(b)
}

// TestSlowWatchIsNotTimeOfTheServer checks that a client which does not read does not make hop 8 look slow.
func TestSlowWatchIsNotTimeOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.send(slowClient{httptest.NewRecorder(), `"new"`}, "bob", "GET", configMapsPath+"?watch=true&timeoutSeconds=10", nil)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		w := httptest.NewRecorder()
		r.send(w, "alice", "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"new"}}`), "Content-Type: application/json")
		<-done
		got := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Verb == hop.Deliver })
		if len(got) != 1 || got[0].Took[hop.Watch] < time.Second || got[0].Wait[hop.Watch] < time.Second {
			t.Errorf("%d %+v", w.Code, got)
		}
		if d := r.Recorder.Durations(hop.Watch); d.Seconds >= 1 {
			t.Errorf("hop 8 has taken %v s", d.Seconds)
		}
	})
}
