package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"proa.dev/test/bench/benchrun"
)

// fanOut measures how long one write takes to reach every watcher.
func fanOut(ctx context.Context, c *benchrun.Client, r *benchrun.Result, set benchrun.Settings) error {
	for _, n := range set.Watchers {
		if err := fanOutTo(ctx, c, r, n, set.Writes); err != nil {
			return fmt.Errorf("%d watchers: %w", n, err)
		}
	}
	return nil
}

func fanOutTo(ctx context.Context, c *benchrun.Client, r *benchrun.Result, watchers, writes int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ns, err := c.Namespace(ctx, "watch")
	if err != nil {
		return err
	}
	object := benchrun.ConfigMap(ns, "watched")
	if err := c.Rest.Post().Namespace(ns).Resource("configmaps").Body(object).Do(ctx).Into(object); err != nil {
		return err
	}
	arrived, err := openWatchers(ctx, c, ns, object.ResourceVersion, watchers)
	if err != nil {
		return err
	}
	var all, acked []time.Duration
	for i := range writes + 5 {
		object.Data["round"] = fmt.Sprint(i)
		start := time.Now()
		if err := c.Update(ctx, object); err != nil {
			return err
		}
		ack := time.Now()
		last, err := collect(ctx, arrived, watchers)
		if err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		if i < 5 { // the first few wake everything up
			continue
		}
		all = append(all, last.Sub(start))
		acked = append(acked, max(last.Sub(ack), 0))
	}
	r.Add(fmt.Sprintf("one write to %d watchers, p50", watchers), "ms", benchrun.Millis(all, 50), benchrun.Lower)
	r.Add(fmt.Sprintf("one write to %d watchers, p99", watchers), "ms", benchrun.Millis(all, 99), benchrun.Lower)
	r.Add(fmt.Sprintf("one write to %d watchers, after its answer, p50", watchers), "ms", benchrun.Millis(acked, 50), benchrun.Lower)
	return nil
}

// openWatchers opens n watches on one object. Each sends the time of every event it receives.
func openWatchers(ctx context.Context, c *benchrun.Client, ns, version string, n int) (<-chan time.Time, error) {
	arrived := make(chan time.Time, n)
	open := make(chan error, n)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 50) // do not open all connections at once
	for range n {
		wg.Go(func() {
			limit <- struct{}{}
			body, err := openWatch(ctx, c, ns, version)
			<-limit
			open <- err
			if err != nil {
				return
			}
			defer body.Close()
			frames(body, arrived)
		})
	}
	for range n {
		if err := <-open; err != nil {
			return nil, err
		}
	}
	return arrived, nil
}

func openWatch(ctx context.Context, c *benchrun.Client, ns, version string) (io.ReadCloser, error) {
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps?watch=true&resourceVersion=%s&timeoutSeconds=600", c.Host, ns, version)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", benchrun.Protobuf+";stream=watch")
	resp, err := c.Raw.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("watch answered %s", resp.Status)
	}
	return resp.Body, nil
}

// frames reads length-delimited events without decoding them, so that the client uses as little processor time as
// possible.
func frames(body io.Reader, arrived chan<- time.Time) {
	reader := bufio.NewReaderSize(body, 4096)
	var size [4]byte
	for {
		if _, err := io.ReadFull(reader, size[:]); err != nil {
			return
		}
		if _, err := reader.Discard(int(binary.BigEndian.Uint32(size[:]))); err != nil {
			return
		}
		arrived <- time.Now()
	}
}

// collect waits for n events and returns the time of the last one.
func collect(ctx context.Context, arrived <-chan time.Time, n int) (time.Time, error) {
	var last time.Time
	timeout := time.After(30 * time.Second)
	for i := range n {
		select {
		case at := <-arrived:
			if at.After(last) {
				last = at
			}
		case <-timeout:
			return last, fmt.Errorf("%d of %d watchers were not told within 30 s", n-i, n)
		case <-ctx.Done():
			return last, errors.New("interrupted")
		}
	}
	return last, nil
}
