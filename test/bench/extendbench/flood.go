package extendbench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
)

// maxMeasuredCreates is how many creates of the well-behaved user are measured at most, alone and during the flood.
const maxMeasuredCreates = 500

// flood measures the creates of one user, alone and while another user lists and creates as fast as 200 connections
// allow.
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
	quiet := &jsonClient{Client: t.Client, http: t.http, user: "quiet"}
	if err := t.until(ctx, func() error { return quiet.post(ctx, thingsPath(0, t.ns), thing(0, "quiet-first")) }); err != nil {
		return err
	}
	// The machine may be faster before the flood than after it, or the other way round.
	alone, err := t.creates(ctx, quiet, "before", maxMeasuredCreates/2, t.set.Window)
	if err != nil {
		return err
	}
	flooded, after, err := t.beside(ctx, quiet)
	if err != nil {
		return err
	}
	if err := wait.Sleep(ctx, time.Second); err != nil {
		return err
	}
	more, err := t.creates(ctx, quiet, "after", maxMeasuredCreates/2, t.set.Window)
	if err != nil {
		return err
	}
	alone = append(alone, more...)
	t.r.Add("create of a quiet user, alone, p50", "ms", benchrun.Millis(alone, 50), benchrun.Lower)
	t.r.Add("create of a quiet user, alone, p99", "ms", benchrun.Millis(alone, 99), benchrun.Lower)
	t.r.Add("create of a quiet user, beside a flood, p50", "ms", benchrun.Millis(flooded, 50), benchrun.Lower)
	t.r.Add("create of a quiet user, beside a flood, p99", "ms", benchrun.Millis(flooded, 99), benchrun.Lower)
	t.r.Add("p99 beside a flood, of that alone", "times", benchrun.Millis(flooded, 99)/max(benchrun.Millis(alone, 99), 0.001),
		benchrun.Lower)
	t.r.Add("lists of the flood", "/s", after.rate(after.Lists), benchrun.Higher)
	t.r.Add("creates of the flood", "/s", after.rate(after.Creates), benchrun.Higher)
	t.r.Add("requests of the flood that were refused", "%",
		100*float64(after.Refused)/float64(max(after.Lists+after.Creates+after.Refused, 1)), benchrun.Lower)
	t.r.Add("processors used by the server beside the flood", "cores", after.cores, benchrun.Lower)
	return nil
}

// beside measures the well-behaved user during the flood.
func (t *extendTrial) beside(ctx context.Context, quiet *jsonClient) (samples []time.Duration, total floodCount, err error) {
	f, err := t.startFlood(ctx)
	if err != nil {
		return nil, total, err
	}
	defer f.stop()
	if err := wait.Sleep(ctx, 2*time.Second); err != nil {
		return nil, total, err
	}
	first, err := f.count()
	if err != nil {
		return nil, total, err
	}
	used, err := benchrun.ProcessorTime(t.pids)
	if err != nil {
		return nil, total, err
	}
	start := time.Now()
	if samples, err = t.creates(ctx, quiet, "flooded", maxMeasuredCreates, 3*t.set.Window); err != nil {
		return nil, total, err
	}
	// Who is answered quickly is soon done: the flood is measured for as long as it needs to be.
	if err := wait.Sleep(ctx, time.Until(start.Add(t.set.Window))); err != nil {
		return nil, total, err
	}
	now, err := benchrun.ProcessorTime(t.pids)
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

// creates creates custom objects one after the other, for a time or a number of them.
func (t *extendTrial) creates(ctx context.Context, by *jsonClient, prefix string, most int, window time.Duration) (samples []time.Duration,
	err error) {
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

// floodArgs returns the arguments by which this program becomes the flood.
func (t *extendTrial) floodArgs() []string {
	return []string{floodCommand, t.kubeconfig, thingsPath(0, t.ns), t.set.FloodPriority}
}

// IsFlood tells whether this process was started as the flood.
func IsFlood() bool { return len(os.Args) == 5 && os.Args[1] == floodCommand }
