package whysource

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestExplanationsAreBounded holds that one explanation at a time is made for a user, and a few for all; that others wait for a while,
// and that not too many wait.
func TestExplanationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Source{}
		begin := func(user string) func() {
			t.Helper()
			done, err := s.begin(t.Context(), user)
			if err != nil {
				t.Fatalf("%s: %v", user, err)
			}
			return done
		}
		refused := func(user string, after time.Duration) {
			t.Helper()
			start := time.Now()
			if _, err := s.begin(t.Context(), user); !apierrors.IsTooManyRequests(err) || time.Since(start) != after {
				t.Errorf("%s: %v after %v", user, err, time.Since(start))
			}
		}
		eve := begin("system:serviceaccount:eve:x")
		refused("system:serviceaccount:eve:y", maxWait)
		others := []func(){begin("a"), begin("b"), begin("c")}
		refused("one more", maxWait)

		var began []string
		for i := range maxWaiting {
			go func() {
				user := fmt.Sprint("system:serviceaccount:eve:", i)
				if i >= maxWaitingOfClient {
					user = fmt.Sprint("user ", i)
				}
				if done, err := s.begin(t.Context(), user); err == nil {
					s.mu.Lock()
					began = append(began, user)
					s.mu.Unlock()
					time.Sleep(time.Millisecond)
					done()
				}
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.waiting != maxWaiting || s.waitingOf["system:serviceaccount:eve"] != maxWaitingOfClient || len(began) != 0 {
			t.Errorf("%d wait, %v have begun", s.waiting, began)
		}
		refused("system:serviceaccount:eve:z", 0) // too many of the client wait already
		refused("one more", 0)                    // too many wait already
		eve()
		for _, done := range others {
			done()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(began) != maxWaiting || s.waiting != 0 || len(s.waitingOf) != 0 || len(s.busy) != 0 {
			t.Errorf("%d have begun, %d wait, %d are being made", len(began), s.waiting, len(s.busy))
		}
	})
}

// TestOneClientDoesNotFillTheQueue checks that whoever asks for very many explanations at once leaves room to others who wait.
func TestOneClientDoesNotFillTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Source{}
		for i := range maxParallel {
			if _, err := s.begin(t.Context(), fmt.Sprint("user ", i)); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			go func() { _, _ = s.begin(t.Context(), "mallory") }()
		}
		synctest.Wait()
		if s.waiting != maxWaitingOfClient {
			t.Errorf("%d requests of one client wait", s.waiting)
		}
		time.Sleep(time.Minute)
	})
}
