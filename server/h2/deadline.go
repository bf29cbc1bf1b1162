package h2

import "time"

// deadline calls a function at a time that can be moved. The lock of the connection guards it.
type deadline struct {
	at    time.Time // the zero time means never
	timer *time.Timer
	armed time.Time // when the timer fires; the zero time when it does not
}

// set moves the deadline. The function is called with the lock of the connection held, and before set returns if the
// time has passed. A deadline that only moves to later times, as for a response that is written in pieces, leaves its
// timer alone until that fires.
func (d *deadline) set(c *conn, at time.Time, expired func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.at = at
	d.arm(c, expired)
}

// arm has the timer fire at the deadline, or before.
func (d *deadline) arm(c *conn, expired func()) {
	if d.at.IsZero() {
		return
	}
	rest := time.Until(d.at)
	switch {
	case rest <= 0:
		d.at = time.Time{}
		expired()
	case d.timer == nil:
		d.armed = d.at
		d.timer = time.AfterFunc(rest, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			d.armed = time.Time{}
			d.arm(c, expired)
		})
	case d.armed.IsZero() || d.at.Before(d.armed):
		d.armed = d.at
		d.timer.Reset(rest)
	}
}

// stop cancels the deadline.
func (d *deadline) stop() {
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}
