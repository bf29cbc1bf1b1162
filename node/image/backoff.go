package image

import (
	"sync"
	"time"
)

// The back-off after failed pulls.
const (
	firstWait = 10 * time.Second
	lastWait  = 300 * time.Second
)

// backoff holds the back-off of failed pulls, by Pod and image. Old entries are dropped.
type backoff struct {
	mu   sync.Mutex // guards fail
	fail map[string]*failure
}

type failure struct {
	at   time.Time
	wait time.Duration
	// why is the failure as the container's waiting state shows it.
	why string
}

func newBackoff() *backoff { return &backoff{fail: map[string]*failure{}} }

// remaining returns how long a key must still wait, and why.
func (b *backoff) remaining(key string, now time.Time) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.fail[key]
	if !ok || now.Sub(f.at) >= f.wait {
		return 0, ""
	}
	return f.wait - now.Sub(f.at), f.why
}

// failed records a failure. Each back-off is twice the one before.
func (b *backoff) failed(key, why string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	f, ok := b.fail[key]
	if !ok {
		b.fail[key] = &failure{at: now, wait: firstWait, why: why}
		return
	}
	f.at, f.wait, f.why = now, min(2*f.wait, lastWait), why
}

// succeeded drops old entries. The key itself keeps its back-off for a while, so that a registry that works only now
// and then is not asked at full speed.
func (b *backoff) succeeded(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
}

func (b *backoff) forget(now time.Time) {
	for key, f := range b.fail {
		if now.Sub(f.at) > 2*lastWait {
			delete(b.fail, key)
		}
	}
}
