package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/messages"
	"proa.dev/why/metadata"
)

// workload is what the explanations of Deployments, ReplicaSets, ReplicationControllers, StatefulSets and DaemonSets have in
// common.
type workload struct {
	meta *metav1.ObjectMeta
	ref  Ref
	// Observed is the generation that the controller has acted on.
	observed int64
	// Wanted, ready and updated count Pods.
	wanted, ready, updated int32
	// RolledOut says that the Pods of the current template are the wanted ones and all that there are.
	rolledOut bool
	// ManualUpdate says that Pods get the current template only when somebody deletes them.
	manualUpdate bool
	failure      *metav1.Condition // why the controller could not create Pods
	pods         []*corev1.Pod
	seen         bool // the Pods could be listed
}

// deployment explains a Deployment.
func (r *reader) deployment(ctx context.Context, t Target) (*Answer, error) {
	d, err := lookup.Load[appsv1.Deployment](ctx, r.Reader, gr.Deployments, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	w := workload{meta: &d.ObjectMeta, ref: t.ref(), observed: d.Status.ObservedGeneration, wanted: 1, ready: d.Status.ReadyReplicas,
		updated: d.Status.UpdatedReplicas}
	if d.Spec.Replicas != nil {
		w.wanted = *d.Spec.Replicas
	}
	w.rolledOut = deploymentRolledOut(d, w.wanted)
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.failure = &metav1.Condition{Type: string(c.Type), Reason: c.Reason, Message: c.Message,
				LastTransitionTime: c.LastTransitionTime}
		}
	}
	// The ReplicaSet of the newest revision comes first: what a rollout waits for is there.
	own, seen := lookup.Owned[appsv1.ReplicaSet](ctx, r.Reader, gr.ReplicaSets, d.Namespace, d.UID)
	_, seenPods := lookup.List[corev1.Pod](ctx, r.Reader, gr.Pods, d.Namespace, "")
	w.seen = seen && seenPods
	slices.SortStableFunc(own, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Compare(revision(b.Annotations), revision(a.Annotations))
	})
	for _, s := range own {
		pods, _ := r.podsOf(ctx, s.Namespace, s.UID)
		w.pods = append(w.pods, pods...)
	}
	a := r.explainWorkload(ctx, &w)
	if d.Spec.Paused && a.State != Stuck && w.updated < w.wanted {
		a.State, a.Cause = Waiting, "The rollout of the Deployment is paused."
		a.Because(a.Object, "spec.paused", "true", time.Time{}).Do("kubectl rollout resume deployment/%s%s", d.Name,
			answer.InNamespace(d.Namespace))
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && a.State != Working {
			a.Because(a.Object, "status.conditions[Progressing]", c.Reason+": "+c.Message, c.LastTransitionTime.Time)
		}
	}
	return a, nil
}

// deploymentRolledOut is what "kubectl rollout status" waits for. The Pods of a former template may be ready while the new ones are not.
func deploymentRolledOut(d *appsv1.Deployment, wanted int32) bool {
	s := &d.Status
	return s.UpdatedReplicas >= wanted && s.Replicas <= s.UpdatedReplicas && s.UnavailableReplicas == 0
}

// revision returns the number that the Deployment controller gave to a ReplicaSet.
func revision(annotations map[string]string) (n int64) {
	_, _ = fmt.Sscan(annotations["deployment.kubernetes.io/revision"], &n)
	return n
}

// replicaSet explains a ReplicaSet.
func (r *reader) replicaSet(ctx context.Context, t Target) (*Answer, error) {
	s, err := lookup.Load[appsv1.ReplicaSet](ctx, r.Reader, gr.ReplicaSets, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	w := workload{meta: &s.ObjectMeta, ref: t.ref(), observed: s.Status.ObservedGeneration, wanted: 1, ready: s.Status.ReadyReplicas,
		updated: s.Status.Replicas}
	if s.Spec.Replicas != nil {
		w.wanted = *s.Spec.Replicas
	}
	w.rolledOut = w.updated >= w.wanted
	for _, c := range s.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			w.failure = &metav1.Condition{Type: string(c.Type), Reason: c.Reason, Message: c.Message,
				LastTransitionTime: c.LastTransitionTime}
		}
	}
	w.pods, w.seen = r.podsOf(ctx, s.Namespace, s.UID)
	return r.explainWorkload(ctx, &w), nil
}

// replicationController explains a ReplicationController.
func (r *reader) replicationController(ctx context.Context, t Target) (*Answer, error) {
	c, err := lookup.Load[corev1.ReplicationController](ctx, r.Reader, gr.ReplicationControllers, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	w := workload{meta: &c.ObjectMeta, ref: t.ref(), observed: c.Status.ObservedGeneration, wanted: 1, ready: c.Status.ReadyReplicas,
		updated: c.Status.Replicas}
	if c.Spec.Replicas != nil {
		w.wanted = *c.Spec.Replicas
	}
	w.rolledOut = w.updated >= w.wanted
	for _, cond := range c.Status.Conditions {
		if cond.Type == corev1.ReplicationControllerReplicaFailure && cond.Status == corev1.ConditionTrue {
			w.failure = &metav1.Condition{Type: string(cond.Type), Reason: cond.Reason, Message: cond.Message,
				LastTransitionTime: cond.LastTransitionTime}
		}
	}
	w.pods, w.seen = r.podsOf(ctx, c.Namespace, c.UID)
	return r.explainWorkload(ctx, &w), nil
}

// statefulSet explains a StatefulSet.
func (r *reader) statefulSet(ctx context.Context, t Target) (*Answer, error) {
	s, err := lookup.Load[appsv1.StatefulSet](ctx, r.Reader, gr.StatefulSets, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	w := workload{meta: &s.ObjectMeta, ref: t.ref(), observed: s.Status.ObservedGeneration, wanted: 1, ready: s.Status.ReadyReplicas,
		updated: s.Status.UpdatedReplicas}
	if s.Spec.Replicas != nil {
		w.wanted = *s.Spec.Replicas
	}
	w.rolledOut = w.updated >= w.wanted-statefulSetPartition(s)
	w.manualUpdate = s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	w.pods, w.seen = r.podsOf(ctx, s.Namespace, s.UID)
	slices.SortFunc(w.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	a := r.explainWorkload(ctx, &w)
	if a.Through != nil && s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement && len(w.pods) < int(w.wanted) {
		a.Cause = "The StatefulSet makes one Pod after the other, and " + a.Through.Object.Name + " is not ready: " +
			answer.Lower(a.Through.Cause)
		a.Because(a.Object, "spec.podManagementPolicy", string(cmp.Or(s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)),
			time.Time{})
	}
	return a, nil
}

// statefulSetPartition is the number of Pods that a rolling update leaves at the former template.
func statefulSetPartition(s *appsv1.StatefulSet) int32 {
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		return *u.Partition
	}
	return 0
}

// daemonSet explains a DaemonSet.
func (r *reader) daemonSet(ctx context.Context, t Target) (*Answer, error) {
	s, err := lookup.Load[appsv1.DaemonSet](ctx, r.Reader, gr.DaemonSets, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	w := workload{meta: &s.ObjectMeta, ref: t.ref(), observed: s.Status.ObservedGeneration, wanted: s.Status.DesiredNumberScheduled,
		ready: s.Status.NumberReady, updated: s.Status.UpdatedNumberScheduled}
	w.rolledOut = w.updated >= w.wanted
	w.manualUpdate = s.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	w.pods, w.seen = r.podsOf(ctx, s.Namespace, s.UID)
	a := r.explainWorkload(ctx, &w)
	if w.wanted == 0 && a.State == Working {
		a.State, a.Cause = Waiting, "No node is one for the DaemonSet: its node selector, affinity or missing tolerations exclude all of them."
		if nodes, seen := lookup.List[corev1.Node](ctx, r.Reader, gr.Nodes, "", ""); seen && len(nodes) == 0 {
			a.State, a.Cause = Stuck, "The cluster has no node on which the DaemonSet could run."
		}
		a.Evidence = nil
		a.Because(a.Object, "status.desiredNumberScheduled", "0", time.Time{}).At(hop.Control)
	}
	return a, nil
}

// podsOf reads the Pods that an object controls.
func (r *reader) podsOf(ctx context.Context, namespace string, owner types.UID) ([]*corev1.Pod, bool) {
	return lookup.Owned[corev1.Pod](ctx, r.Reader, gr.Pods, namespace, owner)
}

// explainWorkload explains an object that keeps Pods by what its controller says and by its worst Pod.
func (r *reader) explainWorkload(ctx context.Context, w *workload) *Answer {
	a := &Answer{Object: w.ref, State: Stuck}
	kindName := "The " + w.ref.Kind
	switch {
	case w.meta.DeletionTimestamp != nil:
		return metadata.Ending(a, w.meta, r.Now)
	case w.observed < w.meta.Generation:
		if metadata.NotActed(a, w.meta, w.observed, r.Now); a.State == Stuck {
			a.Do("proa status tells how the controllers do")
		}
		return a
	case w.failure != nil:
		return r.refused(ctx, a, w.failure.Message, "status.conditions["+w.failure.Type+"]", w.failure.LastTransitionTime.Time)
	}
	if e := lookup.Latest(r.Events(ctx, w.meta.Namespace, w.meta.UID), "FailedCreate", "SuccessfulCreate"); e != nil &&
		e.Reason == "FailedCreate" && len(w.pods) < int(w.wanted) {
		return r.refused(ctx, a, e.Message, "event "+e.Reason, e.Time)
	}
	readyField := "status.readyReplicas"
	if w.ref.Kind == "DaemonSet" {
		readyField = "status.numberReady"
	}
	switch {
	case w.ready >= w.wanted && w.rolledOut:
		a.State, a.Cause = Working, fmt.Sprintf("%s has %s, all of them ready.", kindName, answer.Plural(int(w.wanted), "Pod"))
		if w.updated < w.wanted {
			a.Cause += fmt.Sprintf(" %d of them keep the former template, as its update strategy says.", w.wanted-w.updated)
		}
		return a.Because(a.Object, readyField, fmt.Sprint(w.ready), time.Time{})
	case w.ready >= w.wanted && w.manualUpdate:
		a.State = Waiting
		a.Cause = fmt.Sprintf("%s has %s, all of them ready; %d have the current template, and the others get it when you delete them.",
			kindName, answer.Plural(int(w.wanted), "Pod"), w.updated)
		return a.Because(a.Object, "spec.updateStrategy.type", "OnDelete", time.Time{})
	}
	if worst := r.worstPod(ctx, w.pods); worst != nil {
		a.State, a.Through, a.Hop, a.HopName = worst.State, worst, worst.Hop, worst.HopName
		a.Cause = fmt.Sprintf("%s has %d of %s ready; Pod %s is not: %s", kindName, w.ready, answer.Plural(int(w.wanted), "Pod"),
			worst.Object.Name, answer.Lower(worst.Cause))
		if w.ready >= w.wanted {
			a.Cause = fmt.Sprintf("%s has as many ready Pods as it wants, but its rollout is not complete: Pod %s is not ready: %s", kindName,
				worst.Object.Name, answer.Lower(worst.Cause))
		}
		return a
	}
	a.State = Waiting
	a.Cause = fmt.Sprintf("%s has %d of %s ready, and %d of them from the current template; its Pods are being made.", kindName, w.ready, answer.Plural(int(w.wanted), "Pod"), w.updated)
	if last := lastReplaced(w.pods); last != nil {
		a.Through = r.explainPod(ctx, last)
		a.Cause += " Pod " + last.Name + ", which is replaced, has ended: " + answer.Lower(a.Through.Cause)
	}
	if !w.seen {
		a.State, a.Cause = Unknown, fmt.Sprintf("%s has %d of %s ready; its Pods cannot be read.", kindName, w.ready,
			answer.Plural(int(w.wanted), "Pod"))
	}
	return a.At(hop.Control).Because(a.Object, readyField, fmt.Sprint(w.ready), time.Time{})
}

// manyPods is the number of Pods from which on the Events of their namespace are read at once.
const manyPods = 20

// worstPod returns the answer about the first of the Pods that is worst off, or nil when all work.
func (r *reader) worstPod(ctx context.Context, pods []*corev1.Pod) (worst *Answer) {
	if len(pods) > manyPods {
		r.AllEvents = true
	}
	for _, p := range pods {
		if c := lookup.PodCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
			continue
		}
		if isReplaced(p) {
			continue
		}
		if a := r.explainPod(ctx, p); a.State != Working && (worst == nil || a.State.Rank() > worst.State.Rank()) {
			worst = a
		}
	}
	return worst
}

// isReplaced tells whether a Pod has ended for good, as after an eviction, and its controller makes another one in its place. A Job counts
// the Pods that have failed, so that they tell something about it.
func isReplaced(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && slices.Contains([]string{"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"}, owner.Kind)
}

// lastReplaced returns the newest of the Pods that have failed for good and are replaced; nil if there is none.
func lastReplaced(pods []*corev1.Pod) (last *corev1.Pod) {
	for _, p := range pods {
		if isReplaced(p) && p.Status.Phase == corev1.PodFailed && (last == nil || last.CreationTimestamp.Before(&p.CreationTimestamp)) {
			last = p
		}
	}
	return last
}

// refused explains that the API server refused to create something for a controller, and at which hop.
func (r *reader) refused(ctx context.Context, a *Answer, message, field string, at time.Time) *Answer {
	a.Because(a.Object, field, message, at)
	h, what, advice := messages.Refusal(message)
	a.Cause = "The controller cannot create Pods: " + what + ": " + answer.Sentence(message) + "."
	r.refusals[a] = message
	if h == 0 {
		h = r.webhookHop(ctx, messages.Webhook(message))
	}
	if a.Hop, a.HopName = 0, ""; h != 0 {
		a.At(h)
	}
	return a.Do("%s", advice)
}

// webhookHop returns the hop of a webhook by the configurations that there are; zero when they cannot be read, or when the name is empty or
// occurs in both kinds or in none.
func (r *reader) webhookHop(ctx context.Context, name string) hop.Hop {
	if name == "" {
		return 0
	}
	mutates, seen := lookup.HasWebhook(ctx, r.Reader, "mutatingwebhookconfigurations", name)
	validates, seenToo := lookup.HasWebhook(ctx, r.Reader, "validatingwebhookconfigurations", name)
	switch {
	case !seen || !seenToo || mutates == validates:
		return 0
	case mutates:
		return hop.Mutate
	}
	return hop.Validate
}
