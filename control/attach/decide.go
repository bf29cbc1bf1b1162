package attach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wish is a volume that Pods on a node use.
type wish struct {
	name           corev1.UniqueVolumeName
	volume         string
	driver, handle string
	shared         bool // several nodes may have it
	pods           []*corev1.Pod
	// elsewhere are other nodes that the volume is attached to, and who uses it there.
	elsewhere []string
	users     []*corev1.Pod
}

// scene is what is known of a node and its volumes.
type scene struct {
	name   string
	node   *corev1.Node // nil when it is gone
	wishes []wish
	// have are the VolumeAttachments of the node, by what they attach.
	have map[corev1.UniqueVolumeName]*storagev1.VolumeAttachment
	// inUse is what the node said last that it has mounted; unsure says that nobody knows.
	inUse  []corev1.UniqueVolumeName
	unsure bool
	// since is when each volume was first seen to be needed no longer.
	since  map[corev1.UniqueVolumeName]time.Time
	gentle bool
}

// say is an Event for a Pod.
type say struct {
	pod                *corev1.Pod
	kind, reason, text string
}

// plan is what to do about a node, in this order.
type plan struct {
	// report is what the node is told to be attached; nil when that is as it was.
	report []corev1.AttachedVolume
	// careful says that the node must be asked once more whether it has mounted any of what is detached.
	careful []corev1.UniqueVolumeName
	detach  []*storagev1.VolumeAttachment
	attach  []*storagev1.VolumeAttachment
	say     []say
	idle    map[corev1.UniqueVolumeName]time.Time // the next since
	again   time.Duration
}

// decide says what to do about a node.
func decide(s scene, now time.Time) plan {
	p := plan{idle: map[corev1.UniqueVolumeName]time.Time{}}
	report := map[corev1.UniqueVolumeName]string{} // with paths
	if s.node != nil {
		for _, v := range s.node.Status.VolumesAttached {
			report[v.Name] = v.DevicePath
		}
	}
	wanted := map[corev1.UniqueVolumeName]bool{}
	for i := range s.wishes {
		wanted[s.wishes[i].name] = true
		decideAttach(s, &s.wishes[i], report, &p)
	}
	decideDetach(s, wanted, report, &p, now)
	if s.node != nil {
		p.report = listed(s.node.Status.VolumesAttached, report)
	}
	return p
}

// decideAttach brings a volume to the node.
func decideAttach(s scene, w *wish, report map[corev1.UniqueVolumeName]string, p *plan) {
	tell := func(kind, reason, text string) {
		for _, pod := range w.pods {
			p.say = append(p.say, say{pod, kind, reason, text})
		}
	}
	have := s.have[w.name]
	_, reported := report[w.name]
	switch {
	case have != nil && have.DeletionTimestamp != nil:
		delete(report, w.name) // it can be attached anew when it is gone
	case have != nil && have.Status.Attached:
		if !reported && s.node != nil {
			report[w.name] = ""
			tell(corev1.EventTypeNormal, "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", w.volume))
		}
	case have != nil:
		if e := have.Status.AttachError; e != nil && e.Message != "" {
			tell(corev1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", w.volume, e.Message))
		}
	case s.node == nil || s.node.Annotations[managed] != "true":
	case !w.shared && len(w.elsewhere) > 0:
		for _, pod := range w.pods {
			p.say = append(p.say, say{pod, corev1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("Waiting for detach for volume %q %s", w.volume, occupied(pod, w.users))})
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

// occupied says to a Pod who has the volume it waits for. Of other namespaces it learns only the number.
func occupied(pod *corev1.Pod, users []*corev1.Pod) string {
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

// decideDetach takes from the node what no Pod there needs.
func decideDetach(s scene, wanted map[corev1.UniqueVolumeName]bool, report map[corev1.UniqueVolumeName]string, p *plan, now time.Time) {
	names := make([]corev1.UniqueVolumeName, 0, len(s.have))
	for name := range s.have {
		names = append(names, name)
	}
	for name := range report {
		if strings.HasPrefix(string(name), plugin) && s.have[name] == nil {
			names = append(names, name) // what is told to be attached, and is not
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if wanted[name] {
			continue
		}
		have := s.have[name]
		if have != nil && have.DeletionTimestamp != nil {
			delete(report, name)
			continue
		}
		began, ok := s.since[name]
		if !ok {
			began = now
		}
		p.idle[name] = began
		waited := now.Sub(began)
		mounted := slices.Contains(s.inUse, name) || s.unsure
		timeout := waited >= patience && !s.gentle
		gone := s.node != nil && outOfService(s.node)
		if forced := timeout && (s.node == nil || !healthy(s.node)); mounted && !forced && !gone {
			if left := patience - waited; left > 0 && !s.gentle && (p.again == 0 || left < p.again) {
				p.again = left
			}
			continue
		}
		delete(report, name)
		if !timeout && !gone {
			p.careful = append(p.careful, name)
		}
		if have != nil {
			p.detach = append(p.detach, have)
		}
	}
}

// listed is a list of attached volumes in the order it was, with what is new behind; nil when nothing changes.
func listed(old []corev1.AttachedVolume, now map[corev1.UniqueVolumeName]string) []corev1.AttachedVolume {
	out := []corev1.AttachedVolume{}
	seen := map[corev1.UniqueVolumeName]bool{}
	for _, v := range old {
		if _, stays := now[v.Name]; stays {
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

func healthy(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// ended says that nothing of a Pod runs any more, or will again.
func ended(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return p.DeletionTimestamp != nil && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated == nil && c.State.Waiting == nil
	})
}
