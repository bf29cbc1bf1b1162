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

// Events says what happens to a cluster of several nodes under steady traffic.
type Events struct {
	Count int
	Rate  float64
	// Timeout is when clients give up on a request; 2 s if 0.
	Timeout time.Duration
	// Seed makes the events the same again.
	Seed uint64
	// Kinds are those that happen, equally often; all if empty, and then few of those that take a minute each. InTurn takes them
	// one after the other, not in an order by chance.
	Kinds  []string
	InTurn bool
	// Folder is where the data of a further node is, by its name.
	Folder func(node string) string
}

// The kinds of events. A link that is cut for long is mended when traffic has recovered without it.
const (
	AgentKill = "agent killed"
	NodeKill  = "node killed"
	ShortCut  = "link cut for 5 s"
	LongCut   = "link cut until the node is given up"
)

// Kinds are all events.
func Kinds() []string { return []string{AgentKill, NodeKill, ShortCut, LongCut} }

// Event is one that happened, and what became of the traffic.
type Event struct {
	Kind, Node string
	Failed     int // requests
	// Alone is the time until traffic had recovered without the node, where that was waited for.
	Alone time.Duration
	// Disturbed is the time from the event to the end of the last request that failed; 0 if none did.
	Disturbed time.Duration
	// Well is the time until every node was ready, the Deployment had all its Pods, and the last request had failed.
	Well time.Duration
}

// patience is how long a cluster may take to recover from one event, and quiet how long it must then stay well.
const (
	patience = 4 * time.Minute
	quiet    = 4 * time.Second
)

// Run lets events happen one after the other, each when all is well. It is an error when traffic does not recover.
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
	clients, err := st.steady(ctx, e.Rate, cmp.Or(e.Timeout, 2*time.Second))
	if err != nil {
		return nil, nil, err
	}
	var events []Event
	dice := rand.New(rand.NewPCG(e.Seed, 1))
	for i, kind := range e.order() {
		if err = st.spread(ctx); err != nil {
			break
		}
		var happened Event
		happened, err = e.runEvent(ctx, st, clients, kind, st.nodes[1+dice.IntN(len(st.nodes)-1)])
		if err != nil {
			err = fmt.Errorf("event %d, %s of %s: %w", i+1, happened.Kind, happened.Node, err)
			break
		}
		events = append(events, happened)
		st.say("%d of %d: %s, %s: %d requests failed, the last after %.1f s; all well after %.1f s",
			i+1, e.Count, happened.Kind, happened.Node, happened.Failed, happened.Disturbed.Seconds(), happened.Well.Seconds())
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

// steady starts clients on the first node, outside and in a Pod, which nothing happens to.
func (st *webDeployment) steady(ctx context.Context, rate float64, timeout time.Duration) (all Clients, err error) {
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

// spread brings Pods back to nodes that have lost theirs, so that the next event finds some everywhere: by a rollout, which costs
// no request.
func (st *webDeployment) spread(ctx context.Context) error {
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
	v, err := find(node, filepath.Clean(e.Folder(node.Name)))
	if err != nil {
		return out, err
	}
	st.say("%s, %s: %d processes beside the agent", kind, node.Name, len(v.runtime))
	start := time.Now()
	switch kind {
	case AgentKill:
		err = v.killAgent()
	case NodeKill:
		err = v.kill()
	case ShortCut:
		if err = v.cut(); err == nil {
			err = errors.Join(wait(ctx, 5*time.Second), v.mend())
		}
	case LongCut:
		if err = v.cut(); err == nil {
			out.Alone, err = st.waitUntilWithout(ctx, clients, start, node.Name)
			err = errors.Join(err, v.mend())
		}
	default:
		err = fmt.Errorf("%q is no kind of event; there are: %s", kind, strings.Join(Kinds(), ", "))
	}
	if err != nil {
		return out, err
	}
	well, err := st.waitUntilSteady(ctx, clients, start, func() error { return st.isRestored(ctx) })
	out.Well = well.Sub(start)
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
	since, err := st.waitUntilSteady(ctx, clients, start, st.givenUp(ctx, node))
	return since.Sub(start), err
}

// waitUntilSteady waits until a condition has held, and no request has failed, for a while. It returns since when.
func (st *webDeployment) waitUntilSteady(ctx context.Context, clients Clients, start time.Time, holds func() error) (since time.Time,
	err error) {
	held := start
	err = eventually(ctx, patience, "recovery", func() error {
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
		if quiet > time.Since(since) {
			return fmt.Errorf("all is well since %.1f s only", time.Since(since).Seconds())
		}
		return nil
	})
	return since, err
}

// givenUp returns a check that the cluster treats a node as failed.
func (st *webDeployment) givenUp(ctx context.Context, name string) func() error {
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

// EventTable shows events as Markdown.
func EventTable(events []Event) string {
	var b strings.Builder
	b.WriteString("| | event | node | requests that failed | the last one after | all well after |\n|---|---|---|---|---|---|\n")
	for i, e := range events {
		kind, disturbed := e.Kind, "none"
		if e.Alone > 0 {
			kind += fmt.Sprintf(" (after %.1f s)", e.Alone.Seconds())
		}
		if e.Failed > 0 {
			disturbed = fmt.Sprintf("%.1f s", e.Disturbed.Seconds())
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %d | %s | %.1f s |\n", i+1, kind, e.Node, e.Failed, disturbed, e.Well.Seconds())
	}
	return b.String()
}
