// Package budget bounds how many bytes of memory requests hold, for each user and for all users together. A request leases
// bytes before it spends them, waits while its user or the server has none left, and is refused when that takes too long.
//
// A lease that is larger than what a user may hold is given to a user who holds nothing: so a large request is served alone
// and is not refused for ever. What is held never exceeds the total by more than one such lease, and what Force and Exempt give.
package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrBusy says that no memory became free in time. The request may be sent again later.
var ErrBusy = errors.New("the server holds as much for requests as it may, please try again later")

// Longest is how long a request waits for memory, if its own deadline is not earlier.
const Longest = 15 * time.Second

// maxWaiting bounds the requests of one user that wait. A request that waits costs little, but not nothing.
const maxWaiting = 1000

// maxIdle is how many users are remembered who hold nothing, so that a user's next request finds its account.
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
	rank    int // how many requests of its user waited when it came
	granted chan struct{}
}

// Lease is memory that a request holds. The zero value holds nothing.
type Lease struct {
	budget  *Budget
	account *account
	bytes   int64
}

// New makes a budget of so many bytes, of which one user may hold a quarter.
func New(total int64) *Budget {
	return &Budget{total: total, each: total / 4, accounts: map[string]*account{}}
}

// Take leases bytes for a user. It waits until there are enough, but not longer than Longest or until ctx ends.
func (b *Budget) Take(ctx context.Context, user string, bytes int64) (Lease, error) {
	b.mu.Lock()
	a := b.account(user)
	if b.fits(a, bytes) && !b.contested() {
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
	timer := time.NewTimer(Longest)
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

// Force leases bytes for a user without asking whether there are enough. It is for an answer that must be given, such as a
// refusal, and is small. When the user holds twice its share, not even that is given: nobody reads these answers.
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

// Exempt leases bytes for a user whatever others hold or wait for, as long as the user holds no more than its share.
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

// Grow makes a lease larger, and says whether there was enough for that. It does not wait: whoever waits while holding
// memory may wait for somebody who does the same.
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

// Force makes a lease larger without asking whether there is enough, unless its user then holds more than twice its share. It is for the
// answer to what has already been done.
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

// Shrink gives back what a lease has more than bytes.
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

// Scarce says that the user of a lease holds so much, or others wait, that memory must not be held by a client who does not
// read its answer.
func (l *Lease) Scarce() bool {
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

// Each returns how many bytes one user may hold.
func (b *Budget) Each() int64 { return b.each }

// account finds the account of a user, or opens one.
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

// affords says that a user may hold so much more.
func (b *Budget) affords(a *account, bytes int64) bool { return a.held == 0 || a.held+bytes <= b.each }

// fits says that a user may hold so much more, and that there is so much.
func (b *Budget) fits(a *account, bytes int64) bool {
	return b.affords(a, bytes) && (b.held == 0 || b.held+bytes <= b.total)
}

// contested says that somebody waits for memory that is not their user's to free. Whoever comes later waits behind them, or
// small requests would keep a large one out for ever.
func (b *Budget) contested() bool {
	return slices.ContainsFunc(b.waiting, func(w *waiter) bool { return b.affords(w.account, w.bytes) })
}

// grant gives leases to those who wait: the first of every user, then the second of every user, so that nobody is kept out by
// those of whom very many wait. A user who holds too much is passed over; one for whom
// only the total is too small holds up those behind.
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
