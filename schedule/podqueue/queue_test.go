package podqueue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins/basic"
)

// TestQueue runs scripts with virtual time. Each line is a command and, after "=>", its result:
//
//	add NAME [priority=N] [gated]     pop
//	fail NAME PLUGIN...               error NAME          done NAME       back NAME
//	node [label=X]                    a node with the label was added
//	pod gone                          a Pod on a node was deleted
//	freed priority=N                  a Pod of that priority is no longer nominated for a node
//	update NAME [ungated]             remove NAME         activate NAME
//	wait DURATION                     counts
//
// The plugin Label has a hint for nodes with the name of the Pod as label, Room for deleted Pods, and Slow for neither;
// rejections of Group are pending, and it has a hint for new nodes.
func TestQueue(t *testing.T) {
	textcase.Play(t, "testdata/queue.txt", "=== ", func(t *testing.T, body string) string {
		q := newQueueCase()
		var got strings.Builder
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			command, _, _ := strings.Cut(line, " => ")
			if line != "" && !strings.HasPrefix(line, "#") {
				if out := q.do(t, strings.Fields(command)); out != "" {
					command += " => " + out
				}
			} else {
				command = line
			}
			got.WriteString(command + "\n")
		}
		return got.String()
	})
}

type queueCase struct {
	*Queue
	now    time.Time
	popped map[string]*Entry
}

func newQueueCase() *queueCase {
	label := func(pod *corev1.Pod, _, is kind.Object) bool { return is.(*corev1.Node).Labels["label"] == pod.Name }
	profile := framework.Profile{Name: "s", Plugins: []framework.Plugin{
		basic.SchedulingGates(),
		{Name: "Label", QueueingHints: []framework.QueueingHint{{On: framework.NodeResource, Do: framework.Add | framework.NodeLabel,
			If: label}, {On: framework.TargetPod, Do: framework.PodLabel}}},
		{Name: "Room", QueueingHints: []framework.QueueingHint{{On: framework.AssignedPod, Do: framework.Delete}}},
		{Name: "Group", QueueingHints: []framework.QueueingHint{{On: framework.NodeResource, Do: framework.Add}}},
		{Name: "Slow"},
	}}
	settings := Settings{InitialBackoff: time.Second, MaxBackoff: 10 * time.Second, MaxUnschedulable: 5 * time.Minute}
	return &queueCase{Queue: New(settings, []framework.Profile{profile}), now: time.Unix(1000, 0), popped: map[string]*Entry{}}
}

func (q *queueCase) do(t *testing.T, words []string) string {
	option := func(name string) (string, bool) {
		for _, w := range words {
			if key, value, _ := strings.Cut(w, "="); key == name {
				return value, true
			}
		}
		return "", false
	}
	switch words[0] {
	case "add", "update":
		pod := &corev1.Pod{}
		pod.Name, pod.UID, pod.Spec.SchedulerName = words[1], types.UID(words[1]), "s"
		if v, found := option("priority"); found {
			n, _ := strconv.Atoi(v)
			pod.Spec.Priority = new(int32(n))
		}
		if _, found := option("gated"); found {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
		}
		if v, found := option("label"); found {
			pod.Labels = map[string]string{"label": v}
		}
		q.Add(framework.NewPodInfo(pod), q.now)
	case "pop":
		e, wait := q.Pop(q.now)
		if e == nil {
			return "nothing for " + wait.String()
		}
		q.popped[e.Pod.Pod.Name] = e
		return fmt.Sprintf("%s (attempt %d)", e.Pod.Pod.Name, e.Attempts)
	case "fail":
		by, pending := sets.New[string](), sets.New[string]()
		for _, w := range words[2:] {
			if w == "Group" {
				pending.Insert(w)
			} else {
				by.Insert(w)
			}
		}
		q.Fail(q.popped[words[1]], by, pending, q.now)
	case "error":
		q.Fail(q.popped[words[1]], nil, nil, q.now)
	case "done":
		q.Done(types.UID(words[1]))
	case "back":
		q.ReturnUnbound(q.popped[words[1]], q.now)
	case "remove":
		q.Remove(types.UID(words[1]))
	case "activate":
		q.Activate(types.UID(words[1]), q.now)
	case "node":
		node := &corev1.Node{}
		if v, found := option("label"); found {
			node.Labels = map[string]string{"label": v}
		}
		q.HandleEvent(ClusterEvent{On: framework.NodeResource, Do: framework.Add, New: node}, q.now)
	case "pod":
		q.HandleEvent(ClusterEvent{On: framework.AssignedPod, Do: framework.Delete, Old: &corev1.Pod{}}, q.now)
	case "freed":
		v, _ := option("priority")
		n, _ := strconv.Atoi(v)
		q.HandleRemovedNomination(&corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(n))}}, "n", q.now)
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		q.now = q.now.Add(d)
	case "counts":
		var out []string
		for place, n := range q.Counts() {
			if n > 0 {
				out = append(out, fmt.Sprintf("%s %d", place, n))
			}
		}
		slices.Sort(out)
		return strings.Join(append(out, fmt.Sprintf("in flight %d", q.Queue.inFlight)), ", ")
	default:
		t.Fatalf("no such command: %v", words)
	}
	return ""
}
