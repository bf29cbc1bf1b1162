package cri

import (
	"context"
	"sync"
	"time"
)

// StopSlots limit how many containers of a Pod are being stopped at the same time. containerd's shim queues the ends of at most 32
// processes: of containers, and of the runc that it starts for each request. While the queue is full, it waits a second for each further
// end, so that a Pod of 50 containers that all get their signal at once takes minutes to stop. A nil StopSlots has no limit.
type StopSlots chan struct{}

const (
	// parallelStops is how many containers of a Pod are being stopped at the same time. Each has up to three processes in the queue.
	parallelStops = 8
	// parallelSharedStops is the same for containers that share a PID namespace: the shim reads nothing from its queue while it runs runc
	// for each that has ended, to end the processes that the container has left.
	parallelSharedStops = 2
	// signalTime is how long a container that does not end keeps its slot for its stop signal. On a busy machine the runtime takes much of
	// it to send a signal.
	signalTime = time.Second
	// killTime is how long a container keeps its slot although it was killed, because the kernel does not end one of its processes.
	killTime = 20 * time.Second
)

// NewStopSlots makes the slots of a Pod with as many containers; nil if they need no limit.
func NewStopSlots(containers int, sharePIDs bool) StopSlots {
	limit := parallelStops
	if sharePIDs {
		limit = parallelSharedStops
	}
	if containers <= limit {
		return nil
	}
	return make(StopSlots, limit)
}

// take waits for a slot, which is free again when done is called or the time is over.
func (s StopSlots) take(ctx context.Context, atMost time.Duration) (done func(), err error) {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-s })
	timer := time.AfterFunc(atMost, free)
	return func() { timer.Stop(); free() }, nil
}

// Stop sends a container its stop signal and kills it if it has not ended within the grace period, which begins when the container has a
// slot; isGraceOver tells that. A container that does not exist is stopped.
func (c *Client) Stop(ctx context.Context, id string, grace time.Duration, slots StopSlots) (isGraceOver bool, err error) {
	if slots == nil {
		asked := time.Now()
		grace = grace.Round(time.Second)
		err = c.stopContainer(ctx, id, grace)
		return time.Since(asked) >= grace, err
	}
	if grace > 0 {
		hasEnded, err := c.signal(ctx, id, grace, slots)
		if err != nil || hasEnded {
			return false, err
		}
	}
	done, err := slots.take(ctx, killTime)
	if err != nil {
		return true, err
	}
	defer done()
	return true, c.stopContainer(ctx, id, 0)
}

// signal sends a container its stop signal, and waits for its end during the grace period. The runtime is not left to kill it: it would
// kill at once all containers whose grace periods end at the same moment.
func (c *Client) signal(ctx context.Context, id string, grace time.Duration, slots StopSlots) (hasEnded bool, err error) {
	done, err := slots.take(ctx, signalTime)
	if err != nil {
		return false, err
	}
	defer done()
	// Sending the signal takes a part of the time, so that a very short grace period could be over before the container has it.
	graceCtx, cancel := context.WithTimeout(ctx, max(grace, 2*signalTime))
	defer cancel()
	err = c.stopContainer(graceCtx, id, grace+time.Hour)
	if err != nil && ctx.Err() == nil && graceCtx.Err() != nil {
		return false, nil
	}
	return err == nil, err
}

// stopContainer has the runtime stop a container: with its stop signal and, after the timeout, by killing it.
func (c *Client) stopContainer(ctx context.Context, id string, timeout time.Duration) error {
	_, err := c.StopContainer(ctx, &StopContainerRequest{ContainerId: id, Timeout: int64(timeout / time.Second)})
	if NotFound(err) {
		return nil
	}
	return err
}
