package why

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/trace"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/messages"
	"proa.dev/why/metadata"
	"proa.dev/why/refusedwrite"
	"proa.dev/why/servicetrace"
	"proa.dev/why/traffic"
)

// schedulingAttempts is the resource by which the scheduler of proa says what it found about each node; other clusters do not have it.
func schedulingAttempts() schema.GroupResource {
	return schema.GroupResource{Group: trace.Group, Resource: "schedulingattempts"}
}

// traces is the resource of traces; other clusters do not have it.
func traces() schema.GroupResource {
	return schema.GroupResource{Group: trace.Group, Resource: "traces"}
}

// addDetails adds to an answer about one object what would cost too much in a list of everything that is stuck: what the scheduler
// found about each node, what the agent of a node is at, what keeps a namespace, and which nodes have programmed a Service or serve an
// Ingress.
func (r *reader) addDetails(ctx context.Context, a *Answer) {
	for at := a; at != nil; at = at.Through {
		if message := r.refusals[at]; message != "" && at.Resource != "" {
			r.addRefusal(ctx, at, message)
		}
		on := schema.ParseGroupResource(at.Resource)
		if on == traffic.Ingresses() || on.Group == traffic.GatewayGroup && at.Object.Namespace != "" {
			r.addProxies(ctx, at)
		}
		switch at.Object.Kind {
		case "Pod":
			switch {
			case at.Hop == int(hop.Schedule), at == a && at.State == Working:
				r.addNodes(ctx, at)
			case at.Hop == int(hop.Node) && (at.State == Waiting || at.State == Unknown):
				r.addOpenWork(ctx, at)
			}
		case "Namespace":
			r.addRemaining(ctx, at)
		case "Service":
			if at.State == Working {
				r.addProgrammed(ctx, at)
			}
		}
	}
}

// addNodes adds what the scheduler found about each node when it last tried to place a Pod.
func (r *reader) addNodes(ctx context.Context, a *Answer) {
	attempt, err := lookup.Load[Attempt](ctx, r.Reader, schedulingAttempts(), a.Object.Namespace, a.Object.Name)
	if err != nil {
		r.CannotSee("what the scheduler found about each node", err)
		return
	}
	a.Nodes, a.NodesLeftOut = attempt.Nodes, attempt.LeftOut
	for i := range a.Nodes {
		n := &a.Nodes[i]
		n.Node, n.Reason, n.Plugin = answer.OneLine(n.Node), answer.OneLine(n.Reason), answer.OneLine(n.Plugin)
	}
	r.addTaints(ctx, a)
	if rest := attempt.Total - attempt.Examined; rest > 0 && attempt.Rest != "" {
		a.Because(a.Object, "the other "+answer.Plural(rest, "node"), attempt.Rest, attempt.Time)
	}
}

// maxTainted is of how many nodes the taints are shown.
const maxTainted = 3

// addTaints adds the taints of nodes that were rejected because of them.
func (r *reader) addTaints(ctx context.Context, a *Answer) {
	count := 0
	for i := range a.Nodes {
		if a.Nodes[i].Plugin != "TaintToleration" || a.Nodes[i].Reason == "" {
			continue
		}
		if count++; count > maxTainted {
			return
		}
		node, _ := lookup.Get[corev1.Node](ctx, r.Reader, gr.Nodes, "", a.Nodes[i].Node)
		if node == nil {
			continue // the table has the reason all the same
		}
		taints := make([]string, 0, len(node.Spec.Taints))
		for _, t := range node.Spec.Taints {
			taints = append(taints, t.ToString())
		}
		a.Because(answer.Ref{Kind: "Node", Name: node.Name}, "spec.taints", strings.Join(taints, ", "), time.Time{})
	}
}

// addProgrammed adds the last links of the chain of a Service: which nodes have programmed it.
func (r *reader) addProgrammed(ctx context.Context, a *Answer) {
	slicesOf := r.slices[a.Object]
	if len(slicesOf) == 0 {
		return
	}
	state := map[string]servicetrace.Programming{} // by node
	var answered servicetrace.FirstAnswer
	names := []string{"services:" + a.Object.Name}
	for _, name := range slicesOf {
		names = append(names, "endpointslices.discovery.k8s.io:"+name)
	}
	for _, name := range names {
		t, err := r.trace(ctx, a.Object.Namespace, name)
		switch {
		case isNoResource(err): // another Kubernetes
			return
		case err != nil && !apierrors.IsNotFound(err):
			r.CannotSee("which nodes have programmed the Service", err)
			return
		case err == nil:
			servicetrace.ReadProgrammed(t, names, state)
			answered.Read(t, names)
		}
	}
	if len(state) == 0 {
		r.CannotSee("which nodes have programmed the Service", errors.New("no node has recorded it; records are kept of the latest time only"))
		return
	}
	done, failed, stuck := r.splitProgrammed(ctx, state)
	if a.AddStep("nodes", len(failed) == 0, "programmed by %s: %s", answer.Plural(len(done), "node"), strings.Join(done, ", ")) {
		if answered.Pod != "" {
			a.AddStep("answer", true, "%s answered a client%s, %s ago", answered.Pod, answered.Through, r.ago(answered.At))
		}
		return
	}
	a.Chain[len(a.Chain)-1].Text = answer.OneLine("not programmed on " + strings.Join(failed, ", "))
	if a.State = Waiting; stuck {
		a.State = Stuck
	}
	a.Cause = "The Service has ready endpoints, but not every node leads traffic to them: " + answer.Sentence(strings.Join(failed, "; ")) + "."
	a.At(hop.Network).Actions = nil
	a.Do("proa logs NODE of that node has what its agent says about the Service rules")
}

// splitProgrammed returns the nodes that have programmed something, and those that have not with the error or since when; stuck says that
// one of these will not do so by itself.
func (r *reader) splitProgrammed(ctx context.Context, state map[string]servicetrace.Programming) (done, failed []string, stuck bool) {
	for node, p := range state {
		if p.Done {
			done = append(done, node)
			continue
		}
		if node != servicetrace.HiddenNode {
			if _, missing := lookup.Get[corev1.Node](ctx, r.Reader, gr.Nodes, "", node); missing {
				continue // what a node that is gone has not done, nobody waits for
			}
		}
		failed = append(failed, node+" ("+cmp.Or(p.Err, "since "+r.ago(p.Since))+")")
		stuck = stuck || p.Err != "" || r.Now.Sub(p.Since) > metadata.Patience
	}
	slices.Sort(done)
	slices.Sort(failed)
	return done, failed, stuck
}

// addProxies adds to an Ingress, a Gateway or a route on which nodes the proxy serves it, by their records; and if it does not, why. What
// else is wrong with the object stays its cause, because the proxy may fail for that.
func (r *reader) addProxies(ctx context.Context, a *Answer) {
	name := a.Resource + ":" + a.Object.Name
	t, err := r.trace(ctx, a.Object.Namespace, name)
	if err != nil {
		r.CannotSee("which nodes serve the "+a.Object.Kind, err)
		return
	}
	state := map[string]servicetrace.Programming{}
	servicetrace.ReadProgrammed(t, []string{name}, state)
	done, failed, stuck := r.splitProgrammed(ctx, state)
	if len(failed) == 0 {
		if len(done) > 0 && a.State == Working {
			a.AddStep("proxy", true, "follows it on %s: %s", answer.Plural(len(done), "node"), strings.Join(done, ", "))
		}
		return
	}
	text := answer.Sentence(strings.Join(failed, "; "))
	isCause := a.State != Stuck || slices.ContainsFunc(a.Chain, func(s answer.Step) bool { return s.Name == traffic.AddressStep && !s.OK })
	a.AddStep("proxy", false, "does not follow it on %s", text)
	if a.Because(a.Object, "record of the proxy", text, t.Start); !isCause {
		return
	}
	if a.State = Waiting; stuck {
		a.State = Stuck
	}
	a.At(hop.Network).Cause = answer.OneLine("The proxy of the nodes does not serve the " + a.Object.Kind + ": " + text + ".")
	a.Actions = nil
	a.Do("if a port is in use, end the program that holds it, or let the proxy use another; proa logs NODE has what the proxy says")
}

// refusedWrite explains an object that does not exist by the record of the last request to make it; nil if there is none.
func (r *reader) refusedWrite(ctx context.Context, t Target) *Answer {
	namespace := cmp.Or(t.Namespace, trace.NoNamespace)
	record, err := r.trace(ctx, namespace, t.Resource.String()+":"+t.Name)
	if err != nil || record.State != trace.Failed {
		return nil
	}
	a := &Answer{Object: t.ref(), Resource: t.Resource.String()}
	refusedwrite.ExplainMissing(a, record)
	a.Unseen = r.unseen()
	return a
}

// addOutage adds to an answer that is made of what the server remembers, because its store does not answer, whether the last request
// to change the object was refused for that.
func (r *reader) addOutage(ctx context.Context, a *Answer) {
	if r.Outage() == nil {
		return
	}
	record, err := r.trace(ctx, cmp.Or(a.Object.Namespace, trace.NoNamespace), a.Resource+":"+a.Object.Name)
	if err == nil {
		refusedwrite.ExplainOutage(a, record)
	}
}

// addRefusal sets the hop that has refused what a controller wanted to create to that of the record of such a refusal, which also tells
// which webhook, policy or plugin it was. The message is that of the controller, which does not always tell the hop.
func (r *reader) addRefusal(ctx context.Context, a *Answer, message string) {
	t, err := r.trace(ctx, cmp.Or(a.Object.Namespace, trace.NoNamespace), a.Resource+":"+a.Object.Name)
	if err != nil {
		return // whoever may not read traces has the message
	}
	same := func(s *trace.Span) bool { return messages.IsSameRefusal(s.Error, message) }
	if last := refusedwrite.Last(t, same); last != nil {
		a.At(hop.Hop(last.Hop)).Because(a.Object, "record of "+last.Name, last.Error, last.Start)
	}
}

// addOpenWork adds what the agent of a node is at with a Pod that does not run yet, by its records.
func (r *reader) addOpenWork(ctx context.Context, a *Answer) {
	t, err := r.trace(ctx, a.Object.Namespace, "pods:"+a.Object.Name)
	if err != nil {
		r.CannotSee("what the agent of the node is at", err)
		return
	}
	var open []string
	for i := range t.Spans {
		s := &t.Spans[i]
		if !s.Open || s.Hop != int(hop.Node) || s.Parent != "" || s.Object.Name != a.Object.Name || len(open) >= maxOpen {
			continue
		}
		text := s.Name + " since " + r.ago(s.Start)
		for _, more := range []string{s.Detail, s.Error} {
			if more != "" {
				text += " (" + answer.Sentence(more) + ")"
			}
		}
		if open = append(open, text); s.Error != "" {
			a.State = Stuck
		}
		a.Because(a.Object, "record of "+s.Name, strings.TrimSpace(s.Detail+" "+s.Error), s.Start)
	}
	if len(open) > 0 {
		a.Cause = answer.OneLine(strings.TrimSuffix(a.Cause, ".") + "; what has not ended is: " + strings.Join(open, "; ") + ".")
	}
}

// maxOpen is how many pieces of work that have not ended are named.
const maxOpen = 5

// isNoResource tells whether an error says that the cluster does not have a resource at all.
func isNoResource(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "")
}
