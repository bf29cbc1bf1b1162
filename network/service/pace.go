package service

import (
	"context"
	"time"
)

// breath is the least time from one transaction to the next. The kernel takes most of the time of a transaction for what all of
// them cost, however little they change. So a change that comes alone is made at once, and those of a rush together.
const breath = 10 * time.Millisecond

// pace says when the next transaction may begin. The zero value is ready.
type pace struct{ next time.Time }

// wait returns when a transaction may begin, and says when there will be none because ctx has ended.
func (p *pace) wait(ctx context.Context) bool {
	if left := time.Until(p.next); left > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(left):
		}
	}
	p.next = time.Now().Add(breath)
	return ctx.Err() == nil
}
