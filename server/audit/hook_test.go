package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// receiver records what it gets, and fails as often as configured.
type receiver struct {
	start time.Time
	fail  int
	got   []string // "SECONDS: ID ID …"
}

func (r *receiver) post(body []byte) error {
	var l auditv1.EventList
	if err := json.Unmarshal(body, &l); err != nil {
		return err
	}
	var ids []string
	for _, e := range l.Items {
		ids = append(ids, string(e.AuditID))
	}
	at := fmt.Sprintf("%.1f: %s", time.Since(r.start).Seconds(), strings.Join(ids, " "))
	if r.fail > 0 {
		r.fail--
		r.got = append(r.got, at+" failed")
		return errors.New("away")
	}
	r.got = append(r.got, at)
	return nil
}

// TestHook runs scripts in virtual time: a word is the ID of an event that is sent, a duration that passes, or "close", which
// closes the sender. Dropped events are counted.
func TestHook(t *testing.T) {
	for _, test := range []struct {
		name   string
		hook   Hook
		fail   int
		script string
		want   string
		lost   int
	}{
		{"one batch after a while", Hook{}, 0, "a b c 40s", "30.0: a b c", 0},
		{"at once when a batch is full", Hook{MaxBatch: 2}, 0, "a b c d 1s", "0.0: a b|0.1: c d", 0},
		{"the rest at the end", Hook{}, 0, "a b close", "0.0: a b", 0},
		{"retried after a failure", Hook{MaxWait: time.Second}, 2, "a 60s", "1.0: a failed|11.0: a failed|26.0: a", 0},
		{"retries are limited", Hook{MaxWait: time.Second}, 9, "a 200s",
			"1.0: a failed|11.0: a failed|26.0: a failed|48.5: a failed|82.2: a failed", 1},
		{"no retry after close", Hook{}, 9, "a close", "0.0: a failed", 1},
		{"too many", Hook{Buffer: 2, MaxBatch: 1}, 1, "a 1ms b c d 30s", "0.0: a failed|10.0: a|10.1: b|10.2: c", 1},
		{"one by one", Hook{Blocking: true}, 1, "a b close", "0.0: a failed|10.0: a|10.0: b", 0},
		{"one by one, of which the first is given up", Hook{Blocking: true, Retry: time.Second}, 5, "a b close",
			"0.0: a failed|1.0: a failed|2.5: a failed|4.8: a failed|8.1: a failed|8.1: b", 1},
		{"strictly", Hook{Strict: true, Retry: time.Second}, 5, "a b close", "0.0: a failed|1.0: a failed|2.5: a failed|4.8: a failed|8.1: a failed|a refused|8.1: b", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, lost := &receiver{start: time.Now(), fail: test.fail}, 0
				test.hook.Post = r.post
				s := newSender(test.hook, func(n int, _ bool, _ error) { lost += n })
				defer s.close()
				for word := range strings.FieldsSeq(test.script) {
					if d, err := time.ParseDuration(word); err == nil {
						time.Sleep(d)
						synctest.Wait()
					} else if word == "close" {
						s.close()
					} else {
						if !s.put(fmt.Appendf(nil, "{\"auditID\":%q}\n", word)) {
							r.got = append(r.got, word+" refused")
						}
					}
				}
				if got := strings.Join(r.got, "|"); got != test.want || lost != test.lost {
					t.Errorf("got  %s, lost %d\nwant %s, lost %d", got, lost, test.want, test.lost)
				}
			})
		})
	}
}

// TestHookWithoutFile checks a log that goes to a webhook only.
func TestHookWithoutFile(t *testing.T) {
	r := &receiver{start: time.Now()}
	l, err := Open(Config{Hook: &Hook{Post: r.post}})
	if err != nil {
		t.Fatal(err)
	}
	l.Begin(Request{ID: "x", Verb: "get", Path: "/version", Start: time.Now()}).ResponseComplete(200)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(r.got) != 1 || !strings.HasSuffix(r.got[0], ": x x") { // both stages of the request
		t.Errorf("got %v", r.got)
	}
}

// TestHookBytesAreBounded checks that large events for a webhook that hangs are dropped when the buffer has too many bytes, and that the
// batches of a webhook that has come back are bounded.
func TestHookBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line, lost, hangs := make([]byte, 3<<20), 0, make(chan struct{})
		var sizes []int
		post := func(body []byte) error {
			<-hangs
			sizes = append(sizes, len(body)/len(line))
			return nil
		}
		s := newSender(Hook{Post: post, MaxWait: time.Second}, func(n int, _ bool, _ error) { lost += n })
		defer s.close()
		for range 100 {
			s.put(line)
		}
		time.Sleep(time.Minute)
		if want := 100 - maxHookBytes/len(line); lost != want {
			t.Errorf("%d of 100 events of 3 MiB were dropped, want %d", lost, want)
		}
		close(hangs)
		time.Sleep(time.Minute)
		if got := fmt.Sprint(sizes); got != "[3 3 3 3 3 3 3]" || s.held.Load() != 0 {
			t.Errorf("sent %s at a time, %d bytes are held", got, s.held.Load())
		}
	})
}
