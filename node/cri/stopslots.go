package cri

import (
	"context"
	"sync"
	"time"
)

// StopSlots limit how many containers of a Pod are stopped at the same time: a shim that gets many stop requests at
// once stalls, for minutes at worst. A nil StopSlots has no limit.
type StopSlots chan struct{}

// NewStopSlots makes the slots of one Pod.
func NewStopSlots() StopSlots { return make(StopSlots, parallelStops) }

const (
	// parallelStops is how many containers of a Pod are stopped at the same time.
	parallelStops = 2
	// slotTime is how long a container that does not end keeps its slot.
	slotTime = 500 * time.Millisecond
)

// Take waits for a slot, which is free again when done is called or slotTime is over.
func (s StopSlots) Take(ctx context.Context) (done func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-s })
	timer := time.AfterFunc(slotTime, free)
	return func() { timer.Stop(); free() }, nil
}
