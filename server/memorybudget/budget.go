// Package memorybudget limits how many bytes of memory requests hold, for each user and for all users together. A
// request leases bytes before it uses them, waits while its user or the server has none left, and is rejected when that
// takes too long.
//
// A lease that is larger than the share of a user is given to a user who holds nothing: so a large request is served
// alone and is not rejected forever. What is held never exceeds the total by more than one such lease, and what Force
// and Exempt give.
package memorybudget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrBusy says that no memory became free in time. The request may be retried later.
var ErrBusy = errors.New("the server holds as much for requests as it may, please try again later")

// MaxWait is how long a request waits for memory, if its own deadline is not earlier.
const MaxWait = 15 * time.Second

// maxWaiting limits the waiting requests of one user. A waiting request costs little, but not nothing.
const maxWaiting = 1000

// maxIdle is the number of accounts of users who hold nothing that are kept for their next requests.
const maxIdle = 1024

// Budget is an amount of memory that requests share. Its zero value is not usable, see New.
type Budget struct {
	total, each int64

	mu       sync.Mutex // guards what follows, and all accounts and leases
	held     int64
	peak     int64
	accounts map[string]*account
	waiting  []*waiter // by rank, and then in the order of their arrival
}

// account is what one user holds.
type account struct {
	held    int64
	waiting int
}

// waiter is a request that waits for a lease.
type waiter struct {
	account *account
	bytes   int64
	rank    int // how many requests of its user were waiting when it came
	granted chan struct{}
}

// Lease is memory that a request holds. The zero value holds nothing.
type Lease struct {
	budget  *Budget
	account *account
	bytes   int64
}

// New returns a budget of so many bytes, of which one user may hold a quarter.
func New(total int64) *Budget {
	return &Budget{total: total, each: total / 4, accounts: map[string]*account{}}
}

// Take leases bytes for a user. It waits until there are enough, but not longer than Longest or until ctx ends.
func (b *Budget) Take(ctx context.Context, user string, bytes int64) (Lease, error) {
	b.mu.Lock()
	a := b.account(user)
	if b.fits(a, bytes) && !b.isContested() {
		b.hold(a, bytes)
		b.mu.Unlock()
		return Lease{b, a, bytes}, nil
	}
	if a.waiting >= maxWaiting {
		b.mu.Unlock()
		return Lease{}, ErrBusy
	}
	w := &waiter{account: a, bytes: bytes, rank: a.waiting, granted: make(chan struct{})}
	a.waiting++
	at, _ := slices.BinarySearchFunc(b.waiting, w.rank+1, func(o *waiter, rank int) int { return o.rank - rank })
	b.waiting = slices.Insert(b.waiting, at, w)
	b.grant()
	b.mu.Unlock()
	return b.wait(ctx, w)
}

// wait waits until a waiter is granted its lease.
func (b *Budget) wait(ctx context.Context, w *waiter) (Lease, error) {
	timer := time.NewTimer(MaxWait)
	defer timer.Stop()
	err := ErrBusy
	select {
	case <-w.granted:
		return Lease{b, w.account, w.bytes}, nil
	case <-timer.C:
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.waiting, w); at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		w.account.waiting--
	} else { // it was granted at the last moment
		b.hold(w.account, -w.bytes)
	}
	b.grant()
	return Lease{}, err
}

// Force leases bytes for a user without checking whether there are enough. It is for a small response that must be
// sent, such as an error. When the user holds twice its share, it gets not even that, because apparently it does not
// read its responses.
func (b *Budget) Force(user string, bytes int64) (l Lease, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(user)
	if a.held+bytes > 2*b.each {
		return Lease{}, false
	}
	b.hold(a, bytes)
	return Lease{b, a, bytes}, true
}

// Exempt leases bytes for a user regardless of others, as long as the user holds no more than its share.
func (b *Budget) Exempt(user string, bytes int64) (l Lease, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(user)
	if !b.affords(a, bytes) {
		return Lease{}, false
	}
	b.hold(a, bytes)
	return Lease{b, a, bytes}, true
}

// Grow makes a lease larger, and reports whether there was enough for that. It does not wait: two requests that wait
// while they hold memory could wait for each other.
func (l *Lease) Grow(bytes int64) bool {
	if l.budget == nil {
		return true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	alone := l.account.held == l.bytes
	if !alone && l.account.held+bytes > l.budget.each || l.budget.held != l.bytes && l.budget.held+bytes > l.budget.total {
		return false
	}
	l.budget.hold(l.account, bytes)
	l.bytes += bytes
	return true
}

// Force makes a lease larger without checking whether there is enough, unless its user then holds more than twice its
// share. It is for the response to a request that has already been executed.
func (l *Lease) Force(bytes int64) bool {
	if l.budget == nil {
		return true
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	if l.account.held+bytes > 2*l.budget.each {
		return false
	}
	l.budget.hold(l.account, bytes)
	l.bytes += bytes
	return true
}

// Shrink gives back what a lease has in excess of bytes.
func (l *Lease) Shrink(bytes int64) {
	if l.budget == nil || l.bytes <= bytes {
		return
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	l.budget.hold(l.account, bytes-l.bytes)
	l.bytes = bytes
	l.budget.grant()
}

// Release gives a lease back. It may be called more than once.
func (l *Lease) Release() {
	l.Shrink(0)
	l.budget = nil
}

// IsScarce reports whether the user of a lease holds so much, or others wait, that memory must not be held by a client
// who does not read its response.
func (l *Lease) IsScarce() bool {
	if l.budget == nil {
		return false
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	return l.account.held > l.budget.each/8 || len(l.budget.waiting) > 0
}

// Held returns how many bytes are held, and the most that ever were.
func (b *Budget) Held() (now, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.peak
}

// PerUser returns how many bytes one user may hold.
func (b *Budget) PerUser() int64 { return b.each }

// account returns the account of a user, and opens one if needed.
func (b *Budget) account(user string) *account {
	a := b.accounts[user]
	if a != nil {
		return a
	}
	if len(b.accounts) >= maxIdle {
		for name, other := range b.accounts {
			if other.held == 0 && other.waiting == 0 {
				delete(b.accounts, name)
			}
		}
	}
	a = &account{}
	b.accounts[user] = a
	return a
}

func (b *Budget) hold(a *account, bytes int64) {
	a.held += bytes
	b.held += bytes
	b.peak = max(b.peak, b.held)
}

// affords reports whether so much more is within the share of a user.
func (b *Budget) affords(a *account, bytes int64) bool { return a.held == 0 || a.held+bytes <= b.each }

// fits reports whether so much more is within the share of a user, and within the total.
func (b *Budget) fits(a *account, bytes int64) bool {
	return b.affords(a, bytes) && (b.held == 0 || b.held+bytes <= b.total)
}

// isContested reports whether a request waits for memory that its own user cannot free. Later requests wait behind it,
// otherwise small requests would keep a large one waiting forever.
func (b *Budget) isContested() bool {
	return slices.ContainsFunc(b.waiting, func(w *waiter) bool { return b.affords(w.account, w.bytes) })
}

// grant gives leases to waiting requests: the first of every user, then the second of every user, so that a user with
// very many waiting requests does not delay the others. A user who holds too much is skipped; one for whom only the
// total is too small blocks those behind.
func (b *Budget) grant() {
	kept := b.waiting[:0]
	blocked := false
	for _, w := range b.waiting {
		switch {
		case blocked || !b.affords(w.account, w.bytes):
			kept = append(kept, w)
		case !b.fits(w.account, w.bytes):
			blocked = true
			kept = append(kept, w)
		default:
			b.hold(w.account, w.bytes)
			w.account.waiting--
			close(w.granted)
		}
	}
	clear(b.waiting[len(kept):])
	b.waiting = kept
}
