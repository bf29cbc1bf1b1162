package hop

import "time"

// Clock measures the hops of one request. The zero value measures nothing until Begin is called.
type Clock struct {
	Record Record
	// Detailed says that the record is made in detail: see Recorder.Detail.
	Detailed bool
	running  bool
	last     time.Duration // since the start of the record
}

// Begin starts the clock.
func (c *Clock) Begin(now time.Time) { c.Record.Start, c.last, c.running = now, 0, true }

// IsRunning reports whether Begin was called.
func (c *Clock) IsRunning() bool { return c.running }

// Restart begins the clock anew for one of several writes of a request: what is known of the client and the cause stays.
func (c *Clock) Restart(now time.Time) {
	c.Record = Record{Origin: c.Record.Origin, CauseUID: c.Record.CauseUID, CauseRev: c.Record.CauseRev}
	c.Begin(now)
}

// Elapsed returns the time since Begin; 0 if the clock does not run, or is nil.
func (c *Clock) Elapsed() time.Duration {
	if c == nil || !c.running {
		return 0
	}
	return time.Since(c.Record.Start) // cheaper than time.Now, as it reads the monotonic clock only
}

// Done adds the time since the last call of Begin or Done to hop h.
func (c *Clock) Done(h Hop) {
	if !c.running {
		return
	}
	now := c.Elapsed()
	c.Record.Took[h] += now - c.last
	c.last = now
}

// Refuse is Done for a hop that refuses the request.
func (c *Clock) Refuse(h Hop) {
	c.Done(h)
	c.Record.Refused = h
}

// Waited says that d of the time at hop h was spent waiting.
func (c *Clock) Waited(h Hop, d time.Duration) { c.Record.Wait[h] += d }

// WaitedSinceDone says that the time since the last call of Begin or Done was spent waiting at hop h, unless it is too short to
// have been a wait.
func (c *Clock) WaitedSinceDone(h Hop) {
	if c.running {
		c.WaitedSince(h, c.last)
	}
}

// WaitedSince says that the time at hop h since begin, which Elapsed returned, was spent waiting. It leaves out what is too
// short to have been a wait.
func (c *Clock) WaitedSince(h Hop, begin time.Duration) {
	if d := c.Elapsed() - begin; d >= ShortestWait {
		c.Waited(h, d)
	}
}

// Step adds a named part of hop h that began at begin and ends now.
func (c *Clock) Step(h Hop, name string, begin time.Time, failed bool) {
	c.AddStep(Step{Hop: h, Name: name, After: begin.Sub(c.Record.Start), Took: time.Since(begin), Failed: failed})
}

// AddStep adds a named part of a hop. A record keeps the first steps only, up to MaxSteps, and the last one that has failed.
// On a nil clock it does nothing.
func (c *Clock) AddStep(s Step) {
	switch {
	case c == nil || !c.running:
	case len(c.Record.Steps) < MaxSteps:
		c.Record.Steps = append(c.Record.Steps, s)
	case s.Failed:
		c.Record.Steps[MaxSteps-1] = s
	}
}

// Steps returns how many steps were added.
func (c *Clock) Steps() int {
	if c == nil {
		return 0
	}
	return len(c.Record.Steps)
}
