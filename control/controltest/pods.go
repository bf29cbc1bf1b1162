package controltest

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
)

// pods updates the status of Pods as a kubelet would.
func (s *player) pods(what string, args []string) error {
	exit := int32(1)
	var names []string
	for _, a := range args {
		if n, ok := strings.CutPrefix(a, "exit="); ok {
			if _, err := fmt.Sscan(n, &exit); err != nil {
				return err
			}
			continue
		}
		names = append(names, a)
	}
	now := metav1.NewTime(time.Now())
	return s.updatePods(names, func(p *corev1.Pod) string {
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			return ""
		}
		p.Status.ObservedGeneration = p.Generation
		if p.Status.StartTime == nil {
			p.Status.StartTime = &now
		}
		condition(p, corev1.PodReady, what == "ready", now)
		condition(p, corev1.ContainersReady, what == "ready", now)
		condition(p, corev1.PodInitialized, true, now)
		if p.Status.PodIP == "" {
			s.counts["pod ip"]++
			n := s.counts["pod ip"]
			p.Status.PodIP = fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		}
		p.Status.Phase = map[string]corev1.PodPhase{"ready": corev1.PodRunning, "unready": corev1.PodRunning,
			"succeed": corev1.PodSucceeded, "fail": corev1.PodFailed}[what]
		p.Status.ContainerStatuses = nil
		for _, c := range p.Spec.Containers {
			st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: what == "ready", Started: new(true)}
			switch what {
			case "succeed", "fail":
				st.State.Terminated = &corev1.ContainerStateTerminated{StartedAt: *p.Status.StartTime, FinishedAt: now, Reason: "Completed"}
				if what == "fail" {
					st.State.Terminated.ExitCode, st.State.Terminated.Reason = exit, "Error"
				}
			default:
				st.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
			}
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, st)
		}
		return "status"
	})
}

func condition(p *corev1.Pod, t corev1.PodConditionType, is bool, now metav1.Time) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, now
			}
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: status, LastTransitionTime: now})
}

// bind binds Pods to a node as a scheduler would.
func (s *player) bind(node string, names []string) error {
	_, objects, err := s.list("pods")
	if err != nil {
		return err
	}
	for _, o := range objects {
		p := o.(*corev1.Pod)
		if p.Spec.NodeName != "" || !s.matches(o, names) {
			continue
		}
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		if _, err := s.cluster.Client.Act(s.Context(), gr.Pods, p.Namespace, p.Name, "binding", b); err != nil {
			return err
		}
	}
	return nil
}

// kill finishes the deletion of Pods, as a kubelet does when their containers have ended.
func (s *player) kill() error {
	_, objects, err := s.list("pods")
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetDeletionTimestamp() == nil {
			continue
		}
		if err := s.cluster.Client.Delete(s.Context(), gr.Pods, o.GetNamespace(), o.GetName(),
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			return err
		}
	}
	return nil
}
