package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Events configures a run of events on a cluster of several nodes under steady traffic.
type Events struct {
	Count int
	Rate  float64
	// Timeout is the timeout of requests; 2 s if 0.
	Timeout time.Duration
	// Seed determines the order of the events.
	Seed uint64
	// Kinds are the kinds of events, which happen equally often; all if empty, and then only few of those that take a minute. With
	// InTurn they happen in this order, not in random order.
	Kinds  []string
	InTurn bool
	// Folder returns the data folder of a further node.
	Folder func(node string) string
}

// The kinds of events. With LongCut the link is restored when traffic has recovered without the node.
const (
	AgentKill = "agent killed"
	NodeKill  = "node killed"
	ShortCut  = "link cut for 5 s"
	LongCut   = "link cut until the node is given up"
)

// Kinds returns all kinds of events.
func Kinds() []string { return []string{AgentKill, NodeKill, ShortCut, LongCut} }

// Event is an event that has happened, and its effect on traffic.
type Event struct {
	Kind, Node string
	Failed     int // requests
	// WithoutNode is the time until traffic had recovered without the node; 0 if the event did not wait for that.
	WithoutNode time.Duration
	// Disturbed is the time from the event to the end of the last request that failed; 0 if none did.
	Disturbed time.Duration
	// Recovered is the time until every node was ready, the Deployment had all its Pods, and no more requests failed.
	Recovered time.Duration
}

// recoveryLimit is how long a cluster may take to recover from an event, and steadyTime how long it must then stay recovered.
const (
	recoveryLimit = 4 * time.Minute
	steadyTime    = 4 * time.Second
)

// Run causes the events one after the other, each after the cluster has recovered from the one before. It fails if traffic does not
// recover.
func (e Events) Run(ctx context.Context, c *Cluster) (_ []Event, _ *Outcome, err error) {
	st, err := c.deploy(ctx, false)
	if st != nil {
		defer func() { err = errors.Join(err, st.close(ctx)) }()
	}
	if err != nil {
		return nil, nil, err
	}
	if len(st.nodes) < 2 {
		return nil, nil, errors.New("there is one node only; events happen to the further ones")
	}
	clients, err := st.startClients(ctx, e.Rate, cmp.Or(e.Timeout, 2*time.Second))
	if err != nil {
		return nil, nil, err
	}
	var events []Event
	rng := rand.New(rand.NewPCG(e.Seed, 1))
	for i, kind := range e.order() {
		if err = st.spreadPods(ctx); err != nil {
			break
		}
		var happened Event
		happened, err = e.runEvent(ctx, st, clients, kind, st.nodes[1+rng.IntN(len(st.nodes)-1)])
		if err != nil {
			err = fmt.Errorf("event %d, %s of %s: %w", i+1, happened.Kind, happened.Node, err)
			break
		}
		events = append(events, happened)
		st.logf("%d of %d: %s, %s: %d requests failed, the last after %.1f s; all well after %.1f s",
			i+1, e.Count, happened.Kind, happened.Node, happened.Failed, happened.Disturbed.Seconds(), happened.Recovered.Seconds())
	}
	totals, stopped := clients.Stop()
	return events, &Outcome{Totals: totals, Names: st.urls, Failures: clients.Failures()}, errors.Join(err, stopped)
}

// order returns the events of a run in order.
func (e Events) order() (out []string) {
	kinds := e.Kinds
	if len(kinds) == 0 {
		kinds = []string{AgentKill, NodeKill, ShortCut, NodeKill, AgentKill, ShortCut, NodeKill, LongCut}
	}
	for i := range e.Count {
		out = append(out, kinds[i%len(kinds)])
	}
	if !e.InTurn {
		rand.New(rand.NewPCG(e.Seed, 0)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// startClients starts clients on the first node, outside the cluster and in a Pod, which are not affected by events.
func (st *webDeployment) startClients(ctx context.Context, rate float64, timeout time.Duration) (all Clients, err error) {
	for _, w := range []struct {
		place
		url string
	}{
		{st.onNode(), st.cluster}, {st.from(st.outside), st.ports[0]},
		{st.inPod("Pod on node 1", namespace, "client-"+st.nodes[0].Name), st.cluster},
	} {
		client, err := w.startWith(ctx, rate/3, []string{"-timeout", timeout.String(), "-show", "1000000"}, w.url)
		if err != nil {
			_, stop := all.Stop()
			return nil, errors.Join(err, stop)
		}
		all = append(all, client)
	}
	return all, nil
}

// spreadPods rolls out the Deployment if a node has no Pods, so that every node has some at the next event.
func (st *webDeployment) spreadPods(ctx context.Context) error {
	var pods corev1.PodList
	if err := st.get(ctx, &pods, "pods", "-n", namespace, "-l", "app=web"); err != nil {
		return err
	}
	has := map[string]bool{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			has[p.Spec.NodeName] = true
		}
	}
	if len(has) == len(st.nodes) {
		return nil
	}
	if _, err := st.kubectl(ctx, "", "rollout", "restart", "-n", namespace, "deployment/web"); err != nil {
		return err
	}
	if _, err := st.kubectl(ctx, "", "rollout", "status", "-n", namespace, "deployment/web", "--timeout=180s"); err != nil {
		return err
	}
	return st.waitUntilTerminated(ctx)
}

// runEvent causes one event and waits until the cluster has recovered.
func (e Events) runEvent(ctx context.Context, st *webDeployment, clients Clients, kind string, node Node) (Event, error) {
	out := Event{Kind: kind, Node: node.Name}
	v, err := findNode(node, filepath.Clean(e.Folder(node.Name)))
	if err != nil {
		return out, err
	}
	st.logf("%s, %s: %d processes beside the agent", kind, node.Name, len(v.runtime))
	start := time.Now()
	switch kind {
	case AgentKill:
		err = v.killAgent()
	case NodeKill:
		err = v.kill()
	case ShortCut:
		if err = v.cut(); err == nil {
			err = errors.Join(wait(ctx, 5*time.Second), v.restore())
		}
	case LongCut:
		if err = v.cut(); err == nil {
			out.WithoutNode, err = st.waitUntilWithout(ctx, clients, start, node.Name)
			err = errors.Join(err, v.restore())
		}
	default:
		err = fmt.Errorf("%q is no kind of event; there are: %s", kind, strings.Join(Kinds(), ", "))
	}
	if err != nil {
		return out, err
	}
	recovered, err := st.waitUntilSteady(ctx, clients, start, func() error { return st.isRestored(ctx) })
	out.Recovered = recovered.Sub(start)
	for _, f := range clients.Failures() {
		if f.End().After(start) {
			out.Failed++
			out.Disturbed = max(out.Disturbed, f.End().Sub(start))
		}
	}
	return out, err
}

// waitUntilWithout waits until the cluster treats a node as failed and traffic does not use it.
func (st *webDeployment) waitUntilWithout(ctx context.Context, clients Clients, start time.Time, node string) (time.Duration, error) {
	since, err := st.waitUntilSteady(ctx, clients, start, st.isNodeFailed(ctx, node))
	return since.Sub(start), err
}

// waitUntilSteady waits until a condition has held, and no request has failed, for a while. It returns since when.
func (st *webDeployment) waitUntilSteady(ctx context.Context, clients Clients, start time.Time, holds func() error) (since time.Time,
	err error) {
	held := start
	err = eventually(ctx, recoveryLimit, "recovery", func() error {
		if err := holds(); err != nil {
			held = time.Time{}
			return err
		}
		if held.IsZero() {
			held = time.Now()
		}
		since = held
		for _, f := range clients.Failures() {
			if f.End().After(since) {
				since = f.End()
			}
		}
		if steadyTime > time.Since(since) {
			return fmt.Errorf("all is well since %.1f s only", time.Since(since).Seconds())
		}
		return nil
	})
	return since, err
}

// isNodeFailed returns a check that the cluster treats a node as failed.
func (st *webDeployment) isNodeFailed(ctx context.Context, name string) func() error {
	return func() error {
		nodes, err := st.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if n.Name == name && n.Ready {
				return errors.New("the node is still taken for ready")
			}
		}
		return nil
	}
}

// isRestored returns what a cluster lacks until it is as before: ready nodes, and Pods of the Deployment on them.
func (st *webDeployment) isRestored(ctx context.Context) error {
	nodes, err := st.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !n.Ready {
			return fmt.Errorf("node %s is not ready", n.Name)
		}
	}
	var d appsv1.Deployment
	if err := st.get(ctx, &d, "deployment", "-n", namespace, "web"); err != nil {
		return err
	}
	if d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
		return fmt.Errorf("%d of %d Pods are ready", d.Status.ReadyReplicas, *d.Spec.Replicas)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// EventTable formats events as a Markdown table.
func EventTable(events []Event) string {
	var b strings.Builder
	b.WriteString("| | event | node | requests that failed | the last one after | all well after |\n|---|---|---|---|---|---|\n")
	for i, e := range events {
		kind, disturbed := e.Kind, "none"
		if e.WithoutNode > 0 {
			kind += fmt.Sprintf(" (after %.1f s)", e.WithoutNode.Seconds())
		}
		if e.Failed > 0 {
			disturbed = fmt.Sprintf("%.1f s", e.Disturbed.Seconds())
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %d | %s | %.1f s |\n", i+1, kind, e.Node, e.Failed, disturbed, e.Recovered.Seconds())
	}
	return b.String()
}
