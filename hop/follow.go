package hop

import "sync/atomic"

// follower is who gets every record as it is added.
type follower struct {
	records chan Record
	dropped func(*Record)
}

// following is the follower of a Recorder; nil for none, which costs a Recorder nothing but to look.
type following struct{ atomic.Pointer[follower] }

// Follow returns a channel on which every record arrives that is added from now on and has ended, until stop is called. Routine writes,
// such as renewals of Leases, are left out. The channel holds as many records as buffer says; whoever adds a record never waits, and one
// for which there is no room goes to dropped instead, which must be quick. A Recorder has one follower: the last one.
func (r *Recorder) Follow(buffer int, dropped func(*Record)) (records <-chan Record, stop func()) {
	f := &follower{records: make(chan Record, buffer), dropped: dropped}
	if r == nil {
		return f.records, func() {}
	}
	r.following.Store(f)
	return f.records, func() { r.following.CompareAndSwap(f, nil) }
}

// tell gives a record to the follower, if there is one.
func (r *Recorder) tell(rec *Record) {
	f := r.following.Load()
	if f == nil || rec.Open || rec.isRoutine() {
		return
	}
	c := *rec
	c.Bound()
	c.Wire = nil
	if c.Process == "" {
		c.Process = r.Process
	}
	select {
	case f.records <- c:
	default:
		f.dropped(&c)
	}
}
