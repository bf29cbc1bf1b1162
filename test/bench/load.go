package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// warmup is how many requests are sent before the clock starts, so that
// connections, caches and the runtime of both sides are awake.
const warmup = 50

// sequential measures one request at a time.
func sequential(ctx context.Context, c *client, r *result, set settings) error {
	ns, err := c.namespace(ctx, "seq")
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("cm-%05d", i) }
	for i := range warmup {
		if err := errors.Join(c.create(ctx, ns, name(i)), c.get(ctx, ns, name(i)), c.remove(ctx, ns, name(i))); err != nil {
			return err
		}
	}
	steps := []struct {
		verb  string
		count int
		do    func(i int) error
	}{
		{"create", set.sequential, func(i int) error { return c.create(ctx, ns, name(i)) }},
		{"get", set.sequential, func(i int) error { return c.get(ctx, ns, name(i)) }},
		{"delete", set.sequential, func(i int) error { return c.remove(ctx, ns, name(i)) }},
	}
	for _, s := range steps {
		if err := timed(r, s.verb, s.count, s.do); err != nil {
			return err
		}
	}
	listed, err := c.namespace(ctx, "list")
	if err != nil {
		return err
	}
	if err := c.many(ctx, listed, 0, set.listSize, set.parallel); err != nil {
		return err
	}
	return timed(r, fmt.Sprintf("list of %d", set.listSize), max(set.sequential/5, 20), func(int) error { return c.list(ctx, listed) })
}

func timed(r *result, verb string, count int, do func(int) error) error {
	samples := make([]time.Duration, 0, count)
	for i := range count {
		start := time.Now()
		if err := do(i); err != nil {
			return fmt.Errorf("%s %d: %w", verb, i, err)
		}
		samples = append(samples, time.Since(start))
	}
	for _, p := range []int{50, 90, 99} {
		r.add(fmt.Sprintf("%s, sequential, p%d", verb, p), "ms", millis(samples, p), lower)
	}
	return nil
}

// throughput measures how many requests a number of workers get answered.
func throughput(ctx context.Context, c *client, r *result, set settings) error {
	ns, err := c.namespace(ctx, "par")
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("cm-%06d", i) }
	if err := c.many(ctx, ns, 1<<20, 1<<20+set.parallel, set.parallel); err != nil {
		return err
	}
	created, rate, err := workers(set.parallel, set.window, 0, func(i int) error { return c.create(ctx, ns, name(i)) })
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	r.add(fmt.Sprintf("create, %d-way", set.parallel), "/s", rate, higher)
	_, rate, err = workers(set.parallel, set.window, 0, func(i int) error { return c.get(ctx, ns, name(i%created)) })
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	r.add(fmt.Sprintf("get, %d-way", set.parallel), "/s", rate, higher)
	listed, err := c.namespace(ctx, "plist")
	if err != nil {
		return err
	}
	if err := c.many(ctx, listed, 0, set.listSize, set.parallel); err != nil {
		return err
	}
	_, rate, err = workers(set.parallel, set.window, 0, func(int) error { return c.list(ctx, listed) })
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	r.add(fmt.Sprintf("list of %d, %d-way", set.listSize, set.parallel), "/s", rate, higher)
	_, rate, err = workers(set.parallel, 10*set.window, created, func(i int) error { return c.remove(ctx, ns, name(i)) })
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	r.add(fmt.Sprintf("delete, %d-way", set.parallel), "/s", rate, higher)
	return nil
}

// workers lets n workers call do with rising numbers until the time is over or,
// when limit is not zero, until limit calls are made. It returns the number of
// calls and their rate a second.
func workers(n int, window time.Duration, limit int, do func(int) error) (int, float64, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			for time.Since(start) < window && failed.Load() == nil {
				i := int(next.Add(1) - 1)
				if limit > 0 && i >= limit {
					return
				}
				if err := do(i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := failed.Load(); err != nil {
		return 0, 0, *err
	}
	count := int(next.Load())
	if limit > 0 {
		count = min(count, limit)
	}
	if count == 0 {
		return 0, 0, errNoSamples
	}
	return count, float64(count) / elapsed.Seconds(), nil
}

// many creates the objects numbered from first to last-1.
func (c *client) many(ctx context.Context, ns string, first, last, parallel int) error {
	if last <= first {
		return nil
	}
	_, _, err := workers(parallel, time.Hour, last-first, func(i int) error {
		return c.create(ctx, ns, fmt.Sprintf("cm-%06d", first+i))
	})
	return err
}

// fill creates objects for the memory measurement.
func fill(ctx context.Context, c *client, _ *result, set settings) error {
	ns, err := c.namespace(ctx, "fill")
	if err != nil {
		return err
	}
	return c.many(ctx, ns, 0, set.objects, set.parallel)
}
