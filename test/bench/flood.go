package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

// quietCreates is how many creates of the quiet user are measured at most, alone and beside the flood.
const quietCreates = 500

// flood measures the creates of one user, alone and while another one lists and creates as fast as 200 connections let him.
func (t *extendTrial) flood(ctx context.Context) error {
	if err := t.define(ctx, 0, 5); err != nil {
		return err
	}
	for _, user := range []string{"quiet", "loud"} {
		err := t.post(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": "bench-" + user},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
		})
		if err != nil {
			return err
		}
	}
	if _, err := t.things(ctx, time.Hour, 1000); err != nil {
		return err
	}
	quiet := &door{client: t.client, http: t.http, user: "quiet"}
	if err := t.until(ctx, func() error { return quiet.post(ctx, thingsPath(0, t.ns), thing(0, "quiet-first")) }); err != nil {
		return err
	}
	// The machine may be faster before the flood than after it, or the other way round.
	alone, err := t.creates(ctx, quiet, "before", quietCreates/2, t.set.window)
	if err != nil {
		return err
	}
	flooded, after, err := t.beside(ctx, quiet)
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	more, err := t.creates(ctx, quiet, "after", quietCreates/2, t.set.window)
	if err != nil {
		return err
	}
	alone = append(alone, more...)
	t.r.add("create of a quiet user, alone, p50", "ms", millis(alone, 50), lower)
	t.r.add("create of a quiet user, alone, p99", "ms", millis(alone, 99), lower)
	t.r.add("create of a quiet user, beside a flood, p50", "ms", millis(flooded, 50), lower)
	t.r.add("create of a quiet user, beside a flood, p99", "ms", millis(flooded, 99), lower)
	t.r.add("p99 beside a flood, of that alone", "times", millis(flooded, 99)/max(millis(alone, 99), 0.001), lower)
	t.r.add("lists of the flood", "/s", after.rate(after.Lists), higher)
	t.r.add("creates of the flood", "/s", after.rate(after.Creates), higher)
	t.r.add("requests of the flood that were refused", "%", 100*float64(after.Refused)/float64(max(after.Lists+after.Creates+after.Refused, 1)), lower)
	t.r.add("processors used by the server beside the flood", "cores", after.cores, lower)
	return nil
}

// beside measures the quiet user while the flood runs.
func (t *extendTrial) beside(ctx context.Context, quiet *door) (samples []time.Duration, total floodCount, err error) {
	f, err := t.startFlood(ctx)
	if err != nil {
		return nil, total, err
	}
	defer f.stop()
	if err := sleep(ctx, 2*time.Second); err != nil {
		return nil, total, err
	}
	first, err := f.count()
	if err != nil {
		return nil, total, err
	}
	used, err := cpu(t.pids)
	if err != nil {
		return nil, total, err
	}
	start := time.Now()
	if samples, err = t.creates(ctx, quiet, "flooded", quietCreates, 3*t.set.window); err != nil {
		return nil, total, err
	}
	// Who is answered quickly is soon done: the flood is measured for as long as it needs to be.
	if err := sleep(ctx, time.Until(start.Add(t.set.window))); err != nil {
		return nil, total, err
	}
	now, err := cpu(t.pids)
	if err != nil {
		return nil, total, err
	}
	if total, err = f.count(); err != nil {
		return nil, total, err
	}
	total.since(first, time.Since(start))
	total.cores = float64(now-used) / float64(time.Since(start))
	return samples, total, nil
}

// creates makes custom objects one after the other, as many as asked for or as fit into a time.
func (t *extendTrial) creates(ctx context.Context, by *door, prefix string, most int, window time.Duration) (samples []time.Duration, err error) {
	begin := time.Now()
	for i := 0; i < most && time.Since(begin) < window; i++ {
		body, err := json.Marshal(thing(0, fmt.Sprintf("%s-%06d", prefix, i)))
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if _, err := by.send(ctx, http.MethodPost, thingsPath(0, t.ns), body); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(start))
	}
	return samples, nil
}

// floodArgs are how this program is told to be the flood.
func (t *extendTrial) floodArgs() []string {
	return []string{floodWord, t.kubeconfig, thingsPath(0, t.ns), t.set.floodPriority}
}

// isFlood says that this process was started as the flood.
func isFlood() bool { return len(os.Args) == 5 && os.Args[1] == floodWord }
