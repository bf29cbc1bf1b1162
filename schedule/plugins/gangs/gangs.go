// Package gangs has the plugin GangScheduling, which binds the Pods of a PodGroup only if enough of them have a node.
package gangs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// permitTimeout is how long a Pod of a gang waits on its node for the others.
const permitTimeout = 5 * time.Minute

// messageGaveUp is the reason with which the waiting Pods of a gang are rejected when one of them gives up.
const messageGaveUp = "another pod of the gang gave up its place"

// New returns the plugin GangScheduling. It binds the Pods of a gang only if enough of them have a node. Each Pod is
// scheduled alone and waits, assumed on its node, until there are enough; when one gives up, all do. It is not in the
// default profile by default, because PodGroup is a beta API that is off, as upstream.
func New(deps framework.Deps) framework.Plugin {
	g := &plugin{cluster: deps.Views, activate: deps.Activate, groups: map[string]*gang{}}
	g.client, g.log, g.spawn = deps.Client, deps.Log, deps.Go
	isSameGroup := func(pod *corev1.Pod, _, is kind.Object) bool {
		other, ok := is.(*corev1.Pod)
		return ok && groupOf(pod) != "" && groupOf(pod) == groupOf(other)
	}
	return framework.Plugin{
		Name:  "GangScheduling",
		Reads: []schema.GroupResource{framework.PodGroups()},
		QueueingHints: []framework.QueueingHint{
			{On: framework.UnscheduledPod, Do: framework.Add, If: isSameGroup},
			{On: framework.AssignedPod, Do: framework.Add, If: isSameGroup},
			{On: framework.PodGroup, Do: framework.Add | framework.Update, If: func(pod *corev1.Pod, was, is kind.Object) bool {
				if groupOf(pod) != is.GetNamespace()+"/"+is.GetName() {
					return false
				}
				return was == nil || minCount(is) < minCount(was)
			}},
		},
		PreEnqueue: g.preEnqueue,
		Prepare:    g.prepare,
	}
}

// groupOf returns the PodGroup of a Pod as namespace/name, or "".
func groupOf(pod *corev1.Pod) string {
	if s := pod.Spec.SchedulingGroup; s != nil && s.PodGroupName != nil {
		return pod.Namespace + "/" + *s.PodGroupName
	}
	return ""
}

// minCount returns how many Pods of a group must have a node before they are bound; 0 if the group is no gang.
func minCount(o kind.Object) int {
	if g, ok := o.(*schedulingv1beta1.PodGroup); ok && g.Spec.SchedulingPolicy.Gang != nil {
		return int(g.Spec.SchedulingPolicy.Gang.MinCount)
	}
	return 0
}

type plugin struct {
	cluster  framework.Cluster
	activate func(...types.UID)
	client   client.Client // nil in tests that do not write conditions
	log      *slog.Logger
	spawn    func(func(context.Context))

	mu     sync.Mutex // guards groups
	groups map[string]*gang
}

// gang has the Pods of a group that have a node and are not bound yet. Pods that wait have a channel, others nil.
type gang struct {
	waiting map[types.UID]chan *framework.Rejection
}

// group returns the PodGroup of a Pod, or nil.
func (g *plugin) group(pod *corev1.Pod) kind.Object {
	o, found := g.cluster.Get(framework.PodGroups(), pod.Namespace, *pod.Spec.SchedulingGroup.PodGroupName)
	if !found {
		return nil
	}
	return o
}

// members returns the UIDs of the bound and the unbound Pods of a group.
func (g *plugin) members(pod *corev1.Pod) (bound, unbound map[types.UID]bool) {
	bound, unbound = map[types.UID]bool{}, map[types.UID]bool{}
	for o := range g.cluster.List(gr.Pods, pod.Namespace) {
		p := o.(*corev1.Pod)
		switch {
		case groupOf(p) != groupOf(pod) || framework.HasEnded(p):
		case p.Spec.NodeName != "":
			bound[p.UID] = true
		case p.DeletionTimestamp == nil:
			unbound[p.UID] = true
		}
	}
	return bound, unbound
}

// preEnqueue keeps the Pods of a gang out of the queue until there are enough of them.
func (g *plugin) preEnqueue(pod *corev1.Pod) *framework.Rejection {
	if groupOf(pod) == "" {
		return nil
	}
	group := g.group(pod)
	if group == nil {
		return framework.Unresolvable(fmt.Sprintf("waiting for pods's pod group %q to appear in scheduling queue",
			*pod.Spec.SchedulingGroup.PodGroupName))
	}
	bound, unbound := g.members(pod)
	if unbound[pod.UID] = true; len(bound)+len(unbound) < minCount(group) {
		return framework.Unresolvable("waiting for minCount pods from a gang to appear in scheduling queue")
	}
	return nil
}

func (g *plugin) prepare(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	if groupOf(p.Pod) == "" {
		return framework.Skip()
	}
	return framework.Prepared{
		Update:    func(*framework.NodeInfo, *framework.PodInfo, int) bool { return true },
		Permit:    func(string) framework.Permission { return g.permit(p.Pod) },
		Unreserve: func(string) { g.giveUp(p.Pod) },
		PostBind:  func(string) { g.forgetBound(p.Pod) },
	}
}

// permit allows the binding of a Pod, and of those that wait for it, if enough Pods of the gang have a node now.
// Otherwise the Pod waits.
func (g *plugin) permit(pod *corev1.Pod) framework.Permission {
	group := g.group(pod)
	if group == nil {
		return framework.Permission{Rejection: framework.Failed(fmt.Errorf("failed to get podGroup %s", groupOf(pod)))}
	}
	least := minCount(group)
	if least == 0 {
		return framework.Permission{}
	}
	placed, unbound := g.members(pod)
	g.mu.Lock()
	own := g.groups[groupOf(pod)]
	if own == nil {
		own = &gang{waiting: map[types.UID]chan *framework.Rejection{}}
		g.groups[groupOf(pod)] = own
	}
	own.waiting[pod.UID] = nil
	for uid := range own.waiting {
		placed[uid] = true
		delete(unbound, uid)
	}
	if len(placed) >= least {
		for uid, wait := range own.waiting {
			if wait != nil {
				wait <- nil
				own.waiting[uid] = nil
			}
		}
		g.mu.Unlock()
		g.writeCondition(pod, metav1.ConditionTrue, "Scheduled", "")
		return framework.Permission{}
	}
	wait := make(chan *framework.Rejection, 1)
	own.waiting[pod.UID] = wait
	g.mu.Unlock()
	g.activateMembers(unbound)
	return framework.Permission{Wait: wait, Timeout: permitTimeout, GiveUp: func() bool { return g.leave(pod) }}
}

// activateMembers activates the Pods of a gang that have no node yet.
func (g *plugin) activateMembers(pods map[types.UID]bool) {
	if g.activate == nil {
		return
	}
	for uid := range maps.Keys(pods) {
		g.activate(uid)
	}
}

// leave removes a Pod from its gang that has waited too long. It does nothing and returns false if the Pod has just
// been allowed or rejected, because others rely on that.
func (g *plugin) leave(pod *corev1.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.groups[groupOf(pod)]
	if own == nil || own.waiting[pod.UID] == nil {
		return false
	}
	g.remove(pod)
	return true
}

// giveUp removes a Pod from its gang.
func (g *plugin) giveUp(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(pod)
}

// remove removes a Pod from its gang. If it was waiting, the others that wait are rejected, too, and no longer count.
// The caller holds the lock.
func (g *plugin) remove(pod *corev1.Pod) {
	own := g.groups[groupOf(pod)]
	if own == nil {
		return
	}
	waited := own.waiting[pod.UID] != nil
	if waited {
		g.writeCondition(pod, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable, messageGaveUp)
	}
	delete(own.waiting, pod.UID)
	for uid, wait := range own.waiting {
		if wait != nil && waited {
			wait <- framework.Unschedulable(messageGaveUp)
			delete(own.waiting, uid)
		}
	}
	if len(own.waiting) == 0 {
		delete(g.groups, groupOf(pod))
	}
}

// forgetBound removes a Pod that is bound; from now on it is counted by members.
func (g *plugin) forgetBound(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own := g.groups[groupOf(pod)]; own != nil {
		if delete(own.waiting, pod.UID); len(own.waiting) == 0 {
			delete(g.groups, groupOf(pod))
		}
	}
}

// writeCondition writes the condition of a group, unless it is unchanged. A group that was scheduled once keeps that
// condition.
func (g *plugin) writeCondition(pod *corev1.Pod, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: reason, Message: message}
	next := withCondition(g.group(pod), c)
	if g.client == nil || next == nil {
		return
	}
	g.spawn(func(ctx context.Context) {
		for try := 0; next != nil; try++ {
			_, err := g.client.Update(ctx, framework.PodGroups(), next, "status")
			if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
				return
			}
			var now kind.Object
			if apierrors.IsConflict(err) && try < 5 { // the view may not show the conflicting write yet
				now, err = g.client.Get(ctx, framework.PodGroups(), next.Namespace, next.Name, "")
			}
			if err != nil {
				g.log.WarnContext(ctx, "write the condition of a pod group", "group", groupOf(pod), "err", err)
				return
			}
			next = withCondition(now, c)
		}
	})
}

// withCondition returns a group with a condition, or nil if the condition is unchanged.
func withCondition(o kind.Object, c metav1.Condition) *schedulingv1beta1.PodGroup {
	group, ok := o.(*schedulingv1beta1.PodGroup)
	if !ok || meta.IsStatusConditionTrue(group.Status.Conditions, c.Type) {
		return nil
	}
	next := group.DeepCopy()
	c.ObservedGeneration = group.Generation
	if !meta.SetStatusCondition(&next.Status.Conditions, c) {
		return nil
	}
	return next
}
