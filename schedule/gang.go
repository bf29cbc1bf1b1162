package schedule

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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// gangPatience is how long a pod of a gang holds its place for the others.
const gangPatience = 5 * time.Minute

// gaveUp is what the others of a gang are told when one cannot stay.
const gaveUp = "another pod of the gang gave up its place"

func podGroups() schema.GroupResource {
	return schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
}

// GangScheduling binds the pods of a gang only when enough of them have a place. Each is decided about alone and holds its
// place until there are enough, and when one gives up, all do. It is in the default profile only where somebody wants it: the
// kind PodGroup is in a beta that is off, as upstream has it.
func GangScheduling(deps Deps) Plugin {
	g := &gangs{cluster: deps.Views, activate: deps.Activate, groups: map[string]*gang{}}
	g.client, g.log, g.background = deps.Client, deps.Log, deps.Go
	same := func(pod *corev1.Pod, _, is kind.Object) bool {
		other, ok := is.(*corev1.Pod)
		return ok && groupOf(pod) != "" && groupOf(pod) == groupOf(other)
	}
	return Plugin{
		Name:  "GangScheduling",
		Reads: []schema.GroupResource{podGroups()},
		Wakes: []Wake{
			{On: UnscheduledPod, Do: Add, If: same},
			{On: AssignedPod, Do: Add, If: same},
			{On: PodGroup, Do: Add | Update, If: func(pod *corev1.Pod, was, is kind.Object) bool {
				if groupOf(pod) != is.GetNamespace()+"/"+is.GetName() {
					return false
				}
				return was == nil || minCount(is) < minCount(was)
			}},
		},
		Gate:    g.gate,
		Prepare: g.prepare,
	}
}

// groupOf is the group of a pod as namespace/name, or "".
func groupOf(pod *corev1.Pod) string {
	if s := pod.Spec.SchedulingGroup; s != nil && s.PodGroupName != nil {
		return pod.Namespace + "/" + *s.PodGroupName
	}
	return ""
}

// minCount is how many pods of a group must have a place at once; 0 if each is for itself.
func minCount(o kind.Object) int {
	if g, ok := o.(*schedulingv1beta1.PodGroup); ok && g.Spec.SchedulingPolicy.Gang != nil {
		return int(g.Spec.SchedulingPolicy.Gang.MinCount)
	}
	return 0
}

type gangs struct {
	cluster    Cluster
	activate   func(...types.UID)
	client     client.Client // nil where nobody is told
	log        *slog.Logger
	background func(func(context.Context))

	mu     sync.Mutex // guards groups
	groups map[string]*gang
}

// gang are the pods of a group that have a place and are not bound yet. Those that wait have a channel.
type gang struct {
	placed map[types.UID]chan *Verdict
}

// group is the PodGroup of a pod, or nil.
func (g *gangs) group(pod *corev1.Pod) kind.Object {
	o, found := g.cluster.Get(podGroups(), pod.Namespace, *pod.Spec.SchedulingGroup.PodGroupName)
	if !found {
		return nil
	}
	return o
}

// members are the pods of a group, with and without a node.
func (g *gangs) members(pod *corev1.Pod) (bound, unbound map[types.UID]bool) {
	bound, unbound = map[types.UID]bool{}, map[types.UID]bool{}
	for o := range g.cluster.List(gr.Pods, pod.Namespace) {
		p := o.(*corev1.Pod)
		switch {
		case groupOf(p) != groupOf(pod) || ended(p):
		case p.Spec.NodeName != "":
			bound[p.UID] = true
		case p.DeletionTimestamp == nil:
			unbound[p.UID] = true
		}
	}
	return bound, unbound
}

// gate keeps the pods of a gang out of the queue until there are enough.
func (g *gangs) gate(pod *corev1.Pod) *Verdict {
	if groupOf(pod) == "" {
		return nil
	}
	group := g.group(pod)
	if group == nil {
		return NotEver(fmt.Sprintf("waiting for pods's pod group %q to appear in scheduling queue", *pod.Spec.SchedulingGroup.PodGroupName))
	}
	bound, unbound := g.members(pod)
	if unbound[pod.UID] = true; len(bound)+len(unbound) < minCount(group) {
		return NotEver("waiting for minCount pods from a gang to appear in scheduling queue")
	}
	return nil
}

func (g *gangs) prepare(_ *Snapshot, p *PodInfo) Prepared {
	if groupOf(p.Pod) == "" {
		return Silent()
	}
	return Prepared{
		Update:    func(*NodeInfo, *PodInfo, int) bool { return true },
		Permit:    func(string) Permission { return g.permit(p.Pod) },
		Unreserve: func(string) { g.giveUp(p.Pod) },
		PostBind:  func(string) { g.bound(p.Pod) },
	}
}

// permit lets a pod go on if enough of its gang have a place now, and those that wait for it with it.
func (g *gangs) permit(pod *corev1.Pod) Permission {
	group := g.group(pod)
	if group == nil {
		return Permission{Verdict: Failed(fmt.Errorf("failed to get podGroup %s", groupOf(pod)))}
	}
	least := minCount(group)
	if least == 0 {
		return Permission{}
	}
	placed, unbound := g.members(pod)
	g.mu.Lock()
	mine := g.groups[groupOf(pod)]
	if mine == nil {
		mine = &gang{placed: map[types.UID]chan *Verdict{}}
		g.groups[groupOf(pod)] = mine
	}
	mine.placed[pod.UID] = nil
	for uid := range mine.placed {
		placed[uid] = true
		delete(unbound, uid)
	}
	if len(placed) >= least {
		for uid, wait := range mine.placed {
			if wait != nil {
				wait <- nil
				mine.placed[uid] = nil
			}
		}
		g.mu.Unlock()
		g.tell(pod, metav1.ConditionTrue, "Scheduled", "")
		return Permission{}
	}
	wait := make(chan *Verdict, 1)
	mine.placed[pod.UID] = wait
	g.mu.Unlock()
	g.wake(unbound)
	return Permission{Wait: wait, For: gangPatience, Leave: func() bool { return g.leave(pod) }}
}

// wake brings the rest of a gang to be tried.
func (g *gangs) wake(pods map[types.UID]bool) {
	if g.activate == nil {
		return
	}
	for uid := range maps.Keys(pods) {
		g.activate(uid)
	}
}

// leave is giveUp for a pod that has waited too long. It is false, and nothing happens, for one that has just been told what becomes of
// it: who told it counts on that.
func (g *gangs) leave(pod *corev1.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine := g.groups[groupOf(pod)]
	if mine == nil || mine.placed[pod.UID] == nil {
		return false
	}
	g.remove(pod)
	return true
}

// giveUp takes a pod out of its gang.
func (g *gangs) giveUp(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(pod)
}

// remove takes a pod out of its gang. If it waited, the others that wait give their places up, too: it is all or nothing. From then
// on none of them counts, though they may not have heard of it yet. The lock is held.
func (g *gangs) remove(pod *corev1.Pod) {
	mine := g.groups[groupOf(pod)]
	if mine == nil {
		return
	}
	waited := mine.placed[pod.UID] != nil
	if waited {
		g.tell(pod, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable, gaveUp)
	}
	delete(mine.placed, pod.UID)
	for uid, wait := range mine.placed {
		if wait != nil && waited {
			wait <- No(gaveUp)
			delete(mine.placed, uid)
		}
	}
	if len(mine.placed) == 0 {
		delete(g.groups, groupOf(pod))
	}
}

// bound forgets a pod that is bound; from now on it is seen in the cluster.
func (g *gangs) bound(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if mine := g.groups[groupOf(pod)]; mine != nil {
		if delete(mine.placed, pod.UID); len(mine.placed) == 0 {
			delete(g.groups, groupOf(pod))
		}
	}
}

// tell writes what became of a group, unless it says so already. A group that was scheduled once stays so.
func (g *gangs) tell(pod *corev1.Pod, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: reason, Message: message}
	next := withCondition(g.group(pod), c)
	if g.client == nil || next == nil {
		return
	}
	g.background(func(ctx context.Context) {
		for try := 0; next != nil; try++ {
			_, err := g.client.Update(ctx, podGroups(), next, "status")
			if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
				return
			}
			var now kind.Object
			if apierrors.IsConflict(err) && try < 5 { // somebody else was first; the view may not show it yet
				now, err = g.client.Get(ctx, podGroups(), next.Namespace, next.Name, "")
			}
			if err != nil {
				g.log.WarnContext(ctx, "write the condition of a pod group", "group", groupOf(pod), "err", err)
				return
			}
			next = withCondition(now, c)
		}
	})
}

// withCondition is a group with a condition, or nil if it needs none.
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
