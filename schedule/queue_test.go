package schedule

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
)

// TestQueue plays a script in which time is what the script says. Each line is a command and, after "=>", what comes of it:
//
//	add NAME [priority=N] [gated]     pop
//	fail NAME PLUGIN...               error NAME          done NAME       back NAME
//	node [label=X]                    a node with the label has come
//	pod gone                          a pod has left its node
//	freed priority=N                  a pod of that priority no longer waits for a node
//	update NAME [ungated]             remove NAME         activate NAME
//	wait DURATION                     counts
//
// The plugin Label wakes pods for nodes with a label that is the pod's name, Room for pods that go, and Slow for neither; Group
// is waited for, and a node ends that.
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
	flying map[string]*Entry
}

func newQueueCase() *queueCase {
	label := func(pod *corev1.Pod, _, is kind.Object) bool { return is.(*corev1.Node).Labels["label"] == pod.Name }
	profile := Profile{Name: "s", Plugins: []Plugin{
		SchedulingGates(),
		{Name: "Label", Wakes: []Wake{{On: NodeResource, Do: Add | NodeLabel, If: label}, {On: TargetPod, Do: PodLabel}}},
		{Name: "Room", Wakes: []Wake{{On: AssignedPod, Do: Delete}}},
		{Name: "Group", Wakes: []Wake{{On: NodeResource, Do: Add}}},
		{Name: "Slow"},
	}}
	settings := QueueSettings{FirstBackoff: time.Second, LastBackoff: 10 * time.Second, LongestPark: 5 * time.Minute}
	return &queueCase{Queue: NewQueue(settings, []Profile{profile}), now: time.Unix(1000, 0), flying: map[string]*Entry{}}
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
		if v, has := option("priority"); has {
			n, _ := strconv.Atoi(v)
			pod.Spec.Priority = new(int32(n))
		}
		if _, has := option("gated"); has {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
		}
		if v, has := option("label"); has {
			pod.Labels = map[string]string{"label": v}
		}
		q.Add(NewPodInfo(pod), q.now)
	case "pop":
		e, wait := q.Pop(q.now)
		if e == nil {
			return "nothing for " + wait.String()
		}
		q.flying[e.Pod.Pod.Name] = e
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
		q.Fail(q.flying[words[1]], by, pending, q.now)
	case "error":
		q.Fail(q.flying[words[1]], nil, nil, q.now)
	case "done":
		q.Done(types.UID(words[1]))
	case "back":
		q.Back(q.flying[words[1]], q.now)
	case "remove":
		q.Remove(types.UID(words[1]))
	case "activate":
		q.Activate(types.UID(words[1]), q.now)
	case "node":
		node := &corev1.Node{}
		if v, has := option("label"); has {
			node.Labels = map[string]string{"label": v}
		}
		q.Happened(NodeResource, Add, nil, node, "", q.now)
	case "pod":
		q.Happened(AssignedPod, Delete, &corev1.Pod{}, nil, "", q.now)
	case "freed":
		v, _ := option("priority")
		n, _ := strconv.Atoi(v)
		q.Freed(&corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(n))}}, "n", q.now)
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
		return strings.Join(append(out, fmt.Sprintf("in flight %d", q.Queue.flying)), ", ")
	default:
		t.Fatalf("no such command: %v", words)
	}
	return ""
}
