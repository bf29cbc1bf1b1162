package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// view has the objects of one scenario, and the time since which they have not changed.
type view struct {
	objects     []object
	fingerprint string
	since       time.Time
}

// observer reads all objects of a system again and again, for all scenarios at once, and passes the Pods to the kubelets.
type observer struct {
	api      *apiClient
	kubelets *kubelets

	mu    sync.Mutex
	views map[string]*view
	nodes []object
	last  error
}

// readInterval is the pause between two reads.
const readInterval = 400 * time.Millisecond

// watch reads the system until ctx ends.
func (e *observer) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.readAll(ctx)
		e.mu.Lock()
		e.last = err
		e.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(readInterval):
		}
	}
}

func (e *observer) readAll(ctx context.Context) error {
	started := time.Now()
	by, prints := map[string][]object{}, map[string][]string{}
	var pods, nodes []object
	for _, p := range resources() {
		all, err := e.api.list(ctx, p)
		if err != nil {
			return err
		}
		switch p.kind {
		case "Pod":
			pods = all
		case "Node":
			nodes = all
			continue
		}
		for _, o := range all {
			space := scenarioOf(p, o)
			by[space] = append(by[space], o)
			prints[space] = append(prints[space], fingerprint(p, o))
		}
	}
	busy := e.kubelets.update(ctx, pods)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nodes = nodes
	for space := range e.views {
		if by[space] == nil {
			delete(e.views, space)
		}
	}
	for space, objects := range by {
		slices.Sort(prints[space])
		fingerprint := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(slices.Compact(prints[space]), "\n"))))
		v := e.views[space]
		if v == nil {
			v = &view{}
			e.views[space] = v
		}
		if v.fingerprint != fingerprint || busy[space] {
			v.fingerprint, v.since = fingerprint, started
		}
		v.objects = objects
	}
	return nil
}

// scenarioOf returns the scenario of an object: that of its namespace, or of its name if it is cluster-scoped.
func scenarioOf(p apiResource, o object) string {
	name := text(o, "metadata", "namespace")
	if p.global {
		name = text(o, "metadata", "name")
	}
	name, _, _ = strings.Cut(name, "--")
	return name
}

// fingerprint returns a text that changes when the object does; a higher count of an Event is not a change.
func fingerprint(p apiResource, o object) string {
	if p.kind == "Event" {
		return text(o, "reason") + text(o, "message") + text(o, "involvedObject", "name")
	}
	return p.kind + text(o, "metadata", "uid") + text(o, "metadata", "resourceVersion")
}

// waitUntilIdle waits until nothing of a scenario has changed for a while, and returns its objects.
func (e *observer) waitUntilIdle(ctx context.Context, space string, quiet time.Duration) ([]object, error) {
	from, limit := time.Now(), time.Now().Add(restLimit)
	for {
		e.mu.Lock()
		v, nodes, last := e.views[space], e.nodes, e.last
		if v != nil && last == nil && v.since.Add(quiet).Before(time.Now()) && from.Add(quiet).Before(time.Now()) {
			out := append(slices.Clone(v.objects), nodes...)
			e.mu.Unlock()
			return out, nil
		}
		e.mu.Unlock()
		if time.Now().After(limit) {
			return nil, fmt.Errorf("not idle after %s (%v)", restLimit, last) //nolint:errorlint // last may be nil, which %w cannot print
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const (
	restLimit  = 60 * time.Second
	untilLimit = 100 * time.Second
)
