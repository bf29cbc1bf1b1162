package volumeattach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wantedVolume is a volume that Pods on a node use and that has to be attached.
type wantedVolume struct {
	name           corev1.UniqueVolumeName
	volume         string
	driver, handle string
	shared         bool // it may be attached to several nodes
	pods           []*corev1.Pod
	// otherNodes are the other nodes that the volume is attached to, and otherPods the Pods that use it there.
	otherNodes []string
	otherPods  []*corev1.Pod
}

// nodeState is the state of a node and its volumes.
type nodeState struct {
	name   string
	node   *corev1.Node // nil if it was deleted
	wanted []wantedVolume
	// attachments are the VolumeAttachments of the node, by volume.
	attachments map[corev1.UniqueVolumeName]*storagev1.VolumeAttachment
	// inUse are the volumes that the node last reported as mounted; inUseUnknown is true if that is not known.
	inUse        []corev1.UniqueVolumeName
	inUseUnknown bool
	// unusedSince has the times since which volumes are no longer used.
	unusedSince    map[corev1.UniqueVolumeName]time.Time
	noForcedDetach bool
}

// podEvent is an Event to record about a Pod.
type podEvent struct {
	pod                *corev1.Pod
	kind, reason, text string
}

// plan is what to do with the volumes of a node, in this order.
type plan struct {
	// report is the new list of attached volumes in the node's status; nil for no change.
	report []corev1.AttachedVolume
	// checkUnmounted are the volumes of which the server must be asked once more whether the node has mounted them.
	checkUnmounted []corev1.UniqueVolumeName
	detach         []*storagev1.VolumeAttachment
	attach         []*storagev1.VolumeAttachment
	events         []podEvent
	unusedSince    map[corev1.UniqueVolumeName]time.Time // the next value of nodeState.unusedSince
	again          time.Duration
}

// decide returns what to do with the volumes of a node.
func decide(s nodeState, now time.Time) plan {
	p := plan{unusedSince: map[corev1.UniqueVolumeName]time.Time{}}
	report := map[corev1.UniqueVolumeName]string{} // device paths of attached volumes
	if s.node != nil {
		for _, v := range s.node.Status.VolumesAttached {
			report[v.Name] = v.DevicePath
		}
	}
	wanted := map[corev1.UniqueVolumeName]bool{}
	for i := range s.wanted {
		wanted[s.wanted[i].name] = true
		decideAttach(s, &s.wanted[i], report, &p)
	}
	decideDetach(s, wanted, report, &p, now)
	if s.node != nil {
		p.report = attachedVolumes(s.node.Status.VolumesAttached, report)
	}
	return p
}

// decideAttach plans to attach a volume to the node, and records Events for its Pods.
func decideAttach(s nodeState, w *wantedVolume, report map[corev1.UniqueVolumeName]string, p *plan) {
	tell := func(kind, reason, text string) {
		for _, pod := range w.pods {
			p.events = append(p.events, podEvent{pod, kind, reason, text})
		}
	}
	have := s.attachments[w.name]
	_, reported := report[w.name]
	switch {
	case have != nil && have.DeletionTimestamp != nil:
		delete(report, w.name) // it can be attached again when the deletion has finished
	case have != nil && have.Status.Attached:
		if !reported && s.node != nil {
			report[w.name] = ""
			tell(corev1.EventTypeNormal, "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", w.volume))
		}
	case have != nil:
		if e := have.Status.AttachError; e != nil && e.Message != "" {
			tell(corev1.EventTypeWarning, "FailedAttachVolume",
				fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", w.volume, e.Message))
		}
	case s.node == nil || s.node.Annotations[managedAnnotation] != "true":
	case !w.shared && len(w.otherNodes) > 0:
		for _, pod := range w.pods {
			p.events = append(p.events, podEvent{pod, corev1.EventTypeWarning, "FailedAttachVolume",
				fmt.Sprintf("Waiting for detach for volume %q %s", w.volume, occupiedMessage(pod, w.otherPods))})
		}
	default:
		delete(report, w.name)
		p.attach = append(p.attach, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: attachmentName(w.handle, w.driver, s.name)},
			Spec: storagev1.VolumeAttachmentSpec{
				NodeName: s.name, Attacher: w.driver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(w.volume)},
			},
		})
	}
}

// occupiedMessage returns the message for a Pod about the Pods that use the volume it waits for. It names only those of the Pod's own
// namespace.
func occupiedMessage(pod *corev1.Pod, users []*corev1.Pod) string {
	if len(users) == 0 {
		return "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node"
	}
	var names []string
	for _, u := range users {
		if u.Namespace == pod.Namespace {
			names = append(names, u.Name)
		}
	}
	others := len(users) - len(names)
	switch {
	case len(names) == 0:
		return fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", others)
	case others > 0:
		return fmt.Sprintf("Volume is already used by pod(s) %s and %d pod(s) in different namespaces", strings.Join(names, ", "), others)
	}
	return "Volume is already used by pod(s) " + strings.Join(names, ", ")
}

// decideDetach plans to detach the volumes that no Pod on the node uses.
func decideDetach(s nodeState, wanted map[corev1.UniqueVolumeName]bool, report map[corev1.UniqueVolumeName]string, p *plan, now time.Time) {
	names := make([]corev1.UniqueVolumeName, 0, len(s.attachments))
	for name := range s.attachments {
		names = append(names, name)
	}
	for name := range report {
		if strings.HasPrefix(string(name), volumeNamePrefix) && s.attachments[name] == nil {
			names = append(names, name) // listed as attached without an attachment
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if wanted[name] {
			continue
		}
		have := s.attachments[name]
		if have != nil && have.DeletionTimestamp != nil {
			delete(report, name)
			continue
		}
		began, ok := s.unusedSince[name]
		if !ok {
			began = now
		}
		p.unusedSince[name] = began
		waited := now.Sub(began)
		mounted := slices.Contains(s.inUse, name) || s.inUseUnknown
		timeout := waited >= forceDetachAfter && !s.noForcedDetach
		isOut := s.node != nil && isOutOfService(s.node)
		if forced := timeout && (s.node == nil || !isReady(s.node)); mounted && !forced && !isOut {
			if left := forceDetachAfter - waited; left > 0 && !s.noForcedDetach && (p.again == 0 || left < p.again) {
				p.again = left
			}
			continue
		}
		delete(report, name)
		if !timeout && !isOut {
			p.checkUnmounted = append(p.checkUnmounted, name)
		}
		if have != nil {
			p.detach = append(p.detach, have)
		}
	}
}

// attachedVolumes returns the list of attached volumes in its previous order, with new ones at the end; nil if nothing changes.
func attachedVolumes(old []corev1.AttachedVolume, now map[corev1.UniqueVolumeName]string) []corev1.AttachedVolume {
	out := []corev1.AttachedVolume{}
	seen := map[corev1.UniqueVolumeName]bool{}
	for _, v := range old {
		if _, isAttached := now[v.Name]; isAttached {
			out = append(out, v)
		}
		seen[v.Name] = true
	}
	kept := len(out)
	for name, path := range now {
		if !seen[name] {
			out = append(out, corev1.AttachedVolume{Name: name, DevicePath: path})
		}
	}
	if len(out) == kept && kept == len(old) {
		return nil
	}
	slices.SortFunc(out[kept:], func(a, b corev1.AttachedVolume) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isOutOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// hasEnded reports whether no container of a Pod runs or will run again.
func hasEnded(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return p.DeletionTimestamp != nil && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated == nil && c.State.Waiting == nil
	})
}
