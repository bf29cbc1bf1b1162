package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proa.dev/test/bench/benchrun"
)

// warmup is how many requests are sent before the measurement, so that connections and caches of both sides are filled.
const warmup = 50

// sequential measures one request at a time.
func sequential(ctx context.Context, c *benchrun.Client, r *benchrun.Result, set benchrun.Settings) error {
	ns, err := c.Namespace(ctx, "seq")
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("cm-%05d", i) }
	for i := range warmup {
		if err := errors.Join(c.Create(ctx, ns, name(i)), c.Get(ctx, ns, name(i)), c.Remove(ctx, ns, name(i))); err != nil {
			return err
		}
	}
	steps := []struct {
		verb  string
		count int
		do    func(i int) error
	}{
		{"create", set.Sequential, func(i int) error { return c.Create(ctx, ns, name(i)) }},
		{"get", set.Sequential, func(i int) error { return c.Get(ctx, ns, name(i)) }},
		{"delete", set.Sequential, func(i int) error { return c.Remove(ctx, ns, name(i)) }},
	}
	for _, s := range steps {
		if err := timed(r, s.verb, s.count, s.do); err != nil {
			return err
		}
	}
	listed, err := c.Namespace(ctx, "list")
	if err != nil {
		return err
	}
	if err := createMany(ctx, c, listed, 0, set.ListSize, set.Parallel); err != nil {
		return err
	}
	return timed(r, fmt.Sprintf("list of %d", set.ListSize), max(set.Sequential/5, 20), func(int) error { return c.List(ctx, listed) })
}

func timed(r *benchrun.Result, verb string, count int, do func(int) error) error {
	samples := make([]time.Duration, 0, count)
	for i := range count {
		start := time.Now()
		if err := do(i); err != nil {
			return fmt.Errorf("%s %d: %w", verb, i, err)
		}
		samples = append(samples, time.Since(start))
	}
	for _, p := range []int{50, 90, 99} {
		r.Add(fmt.Sprintf("%s, sequential, p%d", verb, p), "ms", benchrun.Millis(samples, p), benchrun.Lower)
	}
	return nil
}

// throughput measures how many requests a number of workers get answered.
func throughput(ctx context.Context, c *benchrun.Client, r *benchrun.Result, set benchrun.Settings) error {
	ns, err := c.Namespace(ctx, "par")
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("cm-%06d", i) }
	if err := createMany(ctx, c, ns, 1<<20, 1<<20+set.Parallel, set.Parallel); err != nil {
		return err
	}
	created, rate, err := benchrun.Workers(set.Parallel, set.Window, 0, func(i int) error { return c.Create(ctx, ns, name(i)) })
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	r.Add(fmt.Sprintf("create, %d-way", set.Parallel), "/s", rate, benchrun.Higher)
	_, rate, err = benchrun.Workers(set.Parallel, set.Window, 0, func(i int) error { return c.Get(ctx, ns, name(i%created)) })
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	r.Add(fmt.Sprintf("get, %d-way", set.Parallel), "/s", rate, benchrun.Higher)
	listed, err := c.Namespace(ctx, "plist")
	if err != nil {
		return err
	}
	if err := createMany(ctx, c, listed, 0, set.ListSize, set.Parallel); err != nil {
		return err
	}
	_, rate, err = benchrun.Workers(set.Parallel, set.Window, 0, func(int) error { return c.List(ctx, listed) })
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	r.Add(fmt.Sprintf("list of %d, %d-way", set.ListSize, set.Parallel), "/s", rate, benchrun.Higher)
	_, rate, err = benchrun.Workers(set.Parallel, 10*set.Window, created, func(i int) error { return c.Remove(ctx, ns, name(i)) })
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	r.Add(fmt.Sprintf("delete, %d-way", set.Parallel), "/s", rate, benchrun.Higher)
	return nil
}

// createMany creates the objects numbered from first to last-1.
func createMany(ctx context.Context, c *benchrun.Client, ns string, first, last, parallel int) error {
	if last <= first {
		return nil
	}
	_, _, err := benchrun.Workers(parallel, time.Hour, last-first, func(i int) error {
		return c.Create(ctx, ns, fmt.Sprintf("cm-%06d", first+i))
	})
	return err
}

// fill creates objects for the memory measurement.
func fill(ctx context.Context, c *benchrun.Client, _ *benchrun.Result, set benchrun.Settings) error {
	ns, err := c.Namespace(ctx, "fill")
	if err != nil {
		return err
	}
	return createMany(ctx, c, ns, 0, set.Objects, set.Parallel)
}
