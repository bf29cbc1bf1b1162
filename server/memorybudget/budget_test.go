package memorybudget_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/server/memorybudget"
)

// mustTake takes a lease, and fails the test if that would wait.
func mustTake(t *testing.T, b *memorybudget.Budget, user string, bytes int64) *memorybudget.Lease {
	t.Helper()
	l, err := b.Take(t.Context(), user, bytes)
	if err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	return &l
}

// takeInBackground starts to take a lease in a goroutine; the channel receives the result.
func takeInBackground(ctx context.Context, b *memorybudget.Budget, user string, bytes int64) (*memorybudget.Lease, chan error) {
	l, done := new(memorybudget.Lease), make(chan error, 1)
	go func() {
		var err error
		*l, err = b.Take(ctx, user, bytes)
		done <- err
	}()
	synctest.Wait()
	return l, done
}

// hasSucceeded reports whether a wait has ended successfully.
func hasSucceeded(done chan error) bool {
	synctest.Wait()
	select {
	case err := <-done:
		return err == nil
	default:
		return false
	}
}

// TestOneUserIsLimited checks that a user who holds a quarter waits, others do not, and that it proceeds when
// something is released.
func TestOneUserIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		first := mustTake(t, b, "a", 100)
		second, done := takeInBackground(t.Context(), b, "a", 1)
		if hasSucceeded(done) {
			t.Fatal("a holds more than a quarter")
		}
		mustTake(t, b, "b", 100).Release()
		if first.Release(); !hasSucceeded(done) {
			t.Error("a waits, though it holds nothing")
		}
		second.Release()
		second.Release()
		if now, peak := b.Held(); now != 0 || peak != 200 {
			t.Errorf("%d are held, %d were", now, peak)
		}
	})
}

// TestAllUsersTogetherAreLimited checks that all users together hold at most the total, and are served in turn: small leases
// do not starve a large one.
func TestAllUsersTogetherAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		var held []*memorybudget.Lease
		for i := range 4 {
			held = append(held, mustTake(t, b, fmt.Sprint("u", i), 90))
		}
		large, largeDone := takeInBackground(t.Context(), b, "large", 100)
		_, smallDone := takeInBackground(t.Context(), b, "small", 1)
		if hasSucceeded(largeDone) || hasSucceeded(smallDone) {
			t.Fatal("more is held than there is, or the small one was first")
		}
		if held[0].Release(); !hasSucceeded(largeDone) || !hasSucceeded(smallDone) {
			t.Error("they still wait")
		}
		large.Release()
		if _, peak := b.Held(); peak > 400 {
			t.Errorf("%d were held", peak)
		}
	})
}

// TestTooLargeIsServedAlone checks that a lease larger than the share of a user is granted when the user holds nothing.
func TestTooLargeIsServedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		huge := mustTake(t, b, "a", 1000)
		_, done := takeInBackground(t.Context(), b, "b", 1)
		if hasSucceeded(done) {
			t.Fatal("b is served beside it")
		}
		if huge.Release(); !hasSucceeded(done) {
			t.Error("b still waits")
		}
	})
}

// TestWaitsEnd checks that waits end with ErrBusy after the longest wait or the deadline of the request, and leave
// nothing behind.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		held := mustTake(t, b, "a", 100)
		start := time.Now()
		if _, err := b.Take(t.Context(), "a", 1); !errors.Is(err, memorybudget.ErrBusy) || time.Since(start) != memorybudget.MaxWait {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := b.Take(short, "a", 1); !errors.Is(err, memorybudget.ErrBusy) {
			t.Errorf("at its deadline: %v", err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		_, done := takeInBackground(canceled, b, "a", 1)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left: %v", err)
		}
		held.Release()
		if now, _ := b.Held(); now != 0 {
			t.Errorf("%d are held", now)
		}
	})
}

// TestGrowing checks that growing does not wait, and that shrinking lets others proceed.
func TestGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		l := mustTake(t, b, "a", 10)
		if !l.Grow(500) {
			t.Error("who is alone may not grow")
		}
		if l.Shrink(90); !l.IsScarce() {
			t.Error("much is held, and is not scarce")
		}
		other := mustTake(t, b, "a", 10)
		if other.Grow(1) {
			t.Error("a user grew beyond its share")
		}
		_, done := takeInBackground(t.Context(), b, "a", 50)
		if l.Shrink(40); !hasSucceeded(done) {
			t.Error("it still waits")
		}
		none := memorybudget.Lease{}
		none.Shrink(1)
		none.Release()
		if !none.Grow(1) || none.IsScarce() {
			t.Error("a lease of nothing counts")
		}
		f, ok := b.Force("a", 50)
		if now, _ := b.Held(); now != 150 || !ok {
			t.Errorf("%d are held", now)
		}
		if _, ok := b.Force("a", 51); ok {
			t.Error("a user holds more than twice its share")
		}
		f.Release()
	})
}

// TestManyWaiters checks the limits on waiting requests of a user, and on users that are remembered.
func TestManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		ctx, stop := context.WithCancel(t.Context())
		held := mustTake(t, b, "a", 100)
		for range 1000 {
			go func() { _, _ = b.Take(ctx, "a", 1) }()
		}
		synctest.Wait()
		start := time.Now()
		if _, err := b.Take(ctx, "a", 1); !errors.Is(err, memorybudget.ErrBusy) || time.Since(start) != 0 {
			t.Errorf("one more waits: %v", err)
		}
		stop()
		synctest.Wait()
		held.Release()
		for i := range 5000 {
			mustTake(t, b, fmt.Sprint(i), 1).Release()
		}
	})
}

// TestWaitersOfAllUsersTakeTurns checks that a user with one waiting request does not wait behind hundreds of others of
// one user, or of a few.
func TestWaitersOfAllUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorybudget.New(400)
		var held []*memorybudget.Lease
		for i := range 4 {
			held = append(held, mustTake(t, b, fmt.Sprint("holder", i), 100))
		}
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		for i := range 500 {
			takeInBackground(ctx, b, fmt.Sprint("many", i%5), 20)
		}
		_, done := takeInBackground(ctx, b, "node", 20)
		if hasSucceeded(done) {
			t.Fatal("more is held than there is")
		}
		held[0].Release() // this is enough memory for five requests
		held[1].Release()
		if !hasSucceeded(done) {
			t.Error("it waits behind all the others")
		}
	})
}
