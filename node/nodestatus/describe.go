package nodestatus

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// maxNames is how many names of an image a status lists.
const maxNames = 5

// nodeEvent is an Event about the node.
type nodeEvent struct{ kind, reason, text string }

func compare(a, b string) int { return cmp.Compare(a, b) }

// describe fills in the status of a Node. What others maintain there, such as attached volumes or unknown resources,
// stays.
func describe(o *corev1.Node, c *Config, f *Facts, now time.Time) (events []nodeEvent) {
	st := &o.Status
	if f.Addresses != nil && !(c.Cloud && len(st.Addresses) > 0) {
		st.Addresses = f.Addresses
	}
	if id := st.NodeInfo.BootID; id != "" && f.Machine.BootID != "" && id != f.Machine.BootID {
		events = append(events, nodeEvent{corev1.EventTypeWarning, "Rebooted",
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", o.Name, f.Machine.BootID)})
	}
	resources(st, c, f)
	info(st, c, f)
	st.DaemonEndpoints.KubeletEndpoint.Port = c.Port
	st.Images = images(f, c.MaxImages)
	st.RuntimeHandlers = f.Runtime.handlers
	if f.Runtime.features != nil {
		st.Features = f.Runtime.features
	}
	st.DeclaredFeatures = c.Features
	if f.VolumesKnown {
		st.VolumesInUse = f.Volumes
	}
	events = append(events, conditionsOf(o, f, now)...)
	return events
}

func info(st *corev1.NodeStatus, c *Config, f *Facts) {
	swap := st.NodeInfo.Swap
	if f.Machine.Swap > 0 {
		swap = &corev1.NodeSwapStatus{Capacity: new(f.Machine.Swap)}
	}
	st.NodeInfo = corev1.NodeSystemInfo{
		MachineID: f.Machine.MachineID, SystemUUID: f.Machine.SystemUUID, BootID: f.Machine.BootID,
		KernelVersion: f.Machine.Kernel, OSImage: f.Machine.OS,
		ContainerRuntimeVersion: cmp.Or(f.Runtime.name, "unknown") + "://" + cmp.Or(f.Runtime.version, "Unknown"),
		KubeletVersion:          c.Version,
		OperatingSystem:         runtime.GOOS, Architecture: runtime.GOARCH,
		Swap: swap,
	}
}

// images returns the largest images, each with a few of its names.
func images(f *Facts, most int) (out []corev1.ContainerImage) {
	most = cmp.Or(most, 50)
	all := slices.Clone(f.Runtime.images)
	for _, i := range all {
		names := slices.Concat(i.GetRepoDigests(), i.GetRepoTags())
		out = append(out, corev1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(i.GetSize())})
	}
	slices.SortStableFunc(out, func(a, b corev1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), cmp.Compare(strings.Join(a.Names, " "), strings.Join(b.Names, " ")))
	})
	if most >= 0 && len(out) > most {
		out = out[:most]
	}
	return out
}

// pressures returns the pressure conditions, with their reasons and messages.
func pressures() []pressure {
	return []pressure{
		{
			corev1.NodeMemoryPressure,
			conditionTexts{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"},
			conditionTexts{"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"},
		},
		{
			corev1.NodeDiskPressure,
			conditionTexts{"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"},
			conditionTexts{"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"},
		},
		{
			corev1.NodePIDPressure,
			conditionTexts{"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"},
			conditionTexts{"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"},
		},
	}
}

type pressure struct {
	kind    corev1.NodeConditionType
	yes, no conditionTexts
}

// conditionTexts are the reason and message of a condition, and the reason of its Event.
type conditionTexts struct{ reason, message, event string }

// conditionsOf sets the conditions, Ready last, and returns the Events about those that have changed.
func conditionsOf(o *corev1.Node, f *Facts, now time.Time) (events []nodeEvent) {
	record := func(event string) {
		events = append(events, nodeEvent{corev1.EventTypeNormal, event, fmt.Sprintf("Node %s status is now: %s", o.Name, event)})
	}
	for _, p := range pressures() {
		is, w := corev1.ConditionFalse, p.no
		if shortage, pressed := f.Pressed[p.kind]; pressed {
			is, w = corev1.ConditionTrue, p.yes
			if shortage != "" {
				w.message += ": " + shortage
			}
		}
		if changed, _ := setCondition(&o.Status, corev1.NodeCondition{Type: p.kind, Status: is, Reason: w.reason, Message: w.message},
			now); changed {
			record(w.event)
		}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status"}
	event := "NodeReady"
	trouble := slices.Clone(f.Trouble)
	if lacks := missingResources(&o.Status); lacks != "" {
		trouble = append(trouble, fmt.Errorf("missing node capacity for resources: %s", lacks))
	}
	if err := utilerrors.NewAggregate(trouble); err != nil {
		ready.Status, ready.Reason, ready.Message, event = corev1.ConditionFalse, "KubeletNotReady", err.Error(), "NodeNotReady"
	}
	if changed, isNew := setCondition(&o.Status, ready, now); changed && !isNew {
		record(event)
	}
	return events
}

// setCondition sets a condition, with the time at which its status changed.
func setCondition(st *corev1.NodeStatus, c corev1.NodeCondition, now time.Time) (changed, isNew bool) {
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	at := slices.IndexFunc(st.Conditions, func(x corev1.NodeCondition) bool { return x.Type == c.Type })
	if at < 0 {
		st.Conditions = append(st.Conditions, c)
		return true, true
	}
	changed = st.Conditions[at].Status != c.Status
	if !changed {
		c.LastTransitionTime = st.Conditions[at].LastTransitionTime
	}
	st.Conditions[at] = c
	return changed, false
}

func isReady(o *corev1.Node) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// statusDiffers reports whether two statuses differ in more than the times of their heartbeats.
func statusDiffers(a, b *corev1.NodeStatus) bool {
	withoutHeartbeats := func(st *corev1.NodeStatus) *corev1.NodeStatus {
		c := *st
		c.Conditions = slices.Clone(st.Conditions)
		for i := range c.Conditions {
			c.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortStableFunc(c.Conditions, func(x, y corev1.NodeCondition) int { return cmp.Compare(x.Type, y.Type) })
		return &c
	}
	return !equality.Semantic.DeepEqual(withoutHeartbeats(a), withoutHeartbeats(b))
}

// missingResources names the mandatory resources that a node lacks.
func missingResources(st *corev1.NodeStatus) string {
	var out []string
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods,
		corev1.ResourceEphemeralStorage} {
		if _, found := st.Capacity[r]; !found {
			out = append(out, string(r))
		}
	}
	return strings.Join(out, ", ")
}

func copyOf(l corev1.ResourceList) corev1.ResourceList {
	if l == nil {
		return corev1.ResourceList{}
	}
	return maps.Clone(l)
}
