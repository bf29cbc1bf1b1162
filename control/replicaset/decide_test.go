package replicaset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/textcase"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) { textcase.Check(t, "testdata/decide.txt", runCase) }

func runCase(t *testing.T, lines []string) {
	rs := parseSet(t, lines[0])
	var pods []*corev1.Pod
	var failure error
	var want []string
	for _, line := range lines[1:] {
		if message, ok := strings.CutPrefix(line, "failed "); ok {
			failure = errors.New(message)
		} else if strings.Contains(line, ": ") {
			want = append(want, line)
		} else {
			pods = append(pods, parsePod(t, line))
		}
	}
	p := decide(rs, pods, pods, now)
	s := status(rs, pods, nil, failure, now)
	got := []string{"plan: " + describe(p), "status: " + describeStatus(s)}
	if next := timeUntilAvailable(rs, &s, pods, now); next != 0 {
		got = append(got, "again: "+next.String())
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got:\n%s\nwant:\n%s", g, w)
	}
	if s.ObservedGeneration != rs.Generation {
		t.Errorf("observed generation %d", s.ObservedGeneration)
	}
}

func describe(p plan) string {
	switch {
	case p.create > 0:
		return fmt.Sprintf("create %d", p.create)
	case len(p.remove) > 0:
		out := "delete"
		for _, pod := range p.remove {
			out += " " + pod.Name
		}
		return out
	}
	return "nothing"
}

func describeStatus(s appsv1.ReplicaSetStatus) string {
	out := fmt.Sprintf("replicas=%d labeled=%d ready=%d available=%d", s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas,
		s.AvailableReplicas)
	for _, c := range s.Conditions {
		out += fmt.Sprintf(" %s=%s %s %q", c.Type, c.Status, c.Reason, c.Message)
	}
	return out
}

func parseSet(t *testing.T, line string) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 7}}
	rs.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	for key, value := range textcase.Options(strings.Fields(line)) {
		n, _ := strconv.Atoi(value)
		switch key {
		case "replicas":
			if value != "-" {
				rs.Spec.Replicas = new(int32(n))
			}
		case "minready":
			rs.Spec.MinReadySeconds = int32(n)
		case "deleting":
			rs.DeletionTimestamp = new(metav1.NewTime(now))
		case "failing":
			rs.Status.Conditions = append(rs.Status.Conditions,
				appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
					Message: value})
		case "other":
			rs.Status.Conditions = append(rs.Status.Conditions,
				appsv1.ReplicaSetCondition{Type: "Other", Status: corev1.ConditionTrue, Reason: "Because", Message: "mine"})
		default:
			t.Fatalf("field %q", key)
		}
	}
	return rs
}

func parsePod(t *testing.T, line string) *corev1.Pod {
	fields := strings.Fields(line)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{"app": "web", "tier": "front"}}}
	for key, value := range textcase.Options(fields[1:]) {
		switch key {
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "node":
			p.Spec.NodeName = value
		case "bare":
			delete(p.Labels, "tier")
		case "ready":
			c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
			if d, err := time.ParseDuration(value); err == nil {
				c.LastTransitionTime = metav1.NewTime(now.Add(-d))
			}
			p.Status.Conditions = append(p.Status.Conditions, c)
		default:
			t.Fatalf("field %q", key)
		}
	}
	return p
}

func TestMatters(t *testing.T) {
	owned := []metav1.OwnerReference{{UID: "rs", Controller: new(true)}}
	base := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", OwnerReferences: owned, Labels: map[string]string{"a": "b"}}}
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a restart":     {func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}} }, false},
		"a node":        {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, false},
		"a phase":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"readiness":     {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, true},
		"the deletion":  {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }, true},
		"labels":        {func(p *corev1.Pod) { p.Labels = nil }, true},
		"the owner":     {func(p *corev1.Pod) { p.OwnerReferences = nil }, true},
		"another of it": {func(p *corev1.Pod) { p.UID = "q" }, true},
	} {
		next := base.DeepCopy()
		c.change(next)
		if got := isRelevantPodChange(base, next); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if !isRelevantPodChange(nil, base) || !isRelevantPodChange(base, nil) {
		t.Error("the creation or deletion of an owned Pod does not wake its owner")
	}
}

func TestReplicationControllerIsShownWhole(t *testing.T) {
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "rc", Generation: 3},
		Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(2)), MinReadySeconds: 4,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}},
		Status: corev1.ReplicationControllerStatus{Replicas: 1, FullyLabeledReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 4,
			ObservedGeneration: 5,
			Conditions: []corev1.ReplicationControllerCondition{{Type: corev1.ReplicationControllerReplicaFailure,
				Status: corev1.ConditionTrue, Reason: "r", Message: "m"}}},
	}
	rs := fromReplicationController(rc)
	if *rs.Spec.Replicas != 2 || rs.Spec.MinReadySeconds != 4 || rs.Spec.Template.Labels["a"] != "b" || rs.Generation != 3 {
		t.Errorf("shown as %+v", rs)
	}
	back := withStatus(rc, rs.Status)
	if got := describeRC(back.(*corev1.ReplicationController).Status); got != describeRC(rc.Status) {
		t.Errorf("status %s, want %s", got, describeRC(rc.Status))
	}
	fromReplicationController(&corev1.ReplicationController{}) // no template
}

func describeRC(s corev1.ReplicationControllerStatus) string { return fmt.Sprintf("%+v", s) }
