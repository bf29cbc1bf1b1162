package containers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// probeStop is what Events tell of a liveness or startup probe because of which a node may have ended a container.
type probeStop struct {
	event *lookup.Event // the newest about a failure of the probe; nil if there is none
	// isKnown says that an Event tells that the node ended the container for that, the last time that it ended. A container that is
	// restarted for hours has too many Events for all of them to be kept, and those that are kept may be about an earlier end.
	isKnown bool
}

// stopByProbe finds the Events about a probe of a container that has ended. For the end to be known, the container must have ended within
// its grace period after the node said that it ends it.
func stopByProbe(events []lookup.Event, p *corev1.Pod, container string, end *corev1.ContainerStateTerminated) (out probeStop) {
	for i := range events {
		if m := events[i].Message; events[i].Reason == "Unhealthy" && events[i].IsAbout(container) &&
			(strings.Contains(m, "Liveness probe") || strings.Contains(m, "Startup probe")) {
			out.event = &events[i]
			break
		}
	}
	i := slices.IndexFunc(events, func(e lookup.Event) bool {
		return e.Reason == "Killing" && e.IsAbout(container) && strings.Contains(e.Message, "probe") &&
			slices.Contains(strings.FieldsFunc(e.Message, func(r rune) bool { return strings.ContainsRune(` ,.:;"'`, r) }), container)
	})
	if i < 0 {
		return out
	}
	grace := 30 * time.Second
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(min(max(*s, 0), 1<<30)) * time.Second
	}
	killing, at := &events[i], end.FinishedAt.Time
	out.isKnown = at.IsZero() || killing.Time.IsZero() || at.Sub(killing.Time) <= grace+time.Minute
	if out.event == nil {
		out.event = killing
	}
	return out
}

// probeAdvice says what to do about a probe because of which a container is restarted.
const probeAdvice = "check the probe's port and path, and whether initialDelaySeconds or a startupProbe gives the program enough time"

// addStop adds to the cause, which ends with how the container ended, whether the node ended it because of a probe, as far as Events tell.
func (r *Explainer) addStop(p *corev1.Pod, c *corev1.ContainerStatus, end *corev1.ContainerStateTerminated, a *answer.Answer,
	events []lookup.Event) {
	stop := stopByProbe(events, p, c.Name, end)
	kindName, probe := stoppingProbe(p, c.Name)
	switch e := stop.event; {
	case stop.isKnown:
		a.Cause += " The node ended it because its probe failed: " + failure(e) + "."
	case e != nil && (endedBySignal(end) || end.ExitCode == 0):
		a.Cause += " Whether the node ended it because of its probe is not seen: the last Event about that is from " +
			answer.Ago(r.Now, e.Time) + " ago, and newer ones may not have been kept: " + failure(e) + "."
	case e != nil || probe == nil || !endedBySignal(end):
		return
	default:
		a.Cause += " Who sent the signal is not seen, because no Event tells it; the node does so when the " + kindName + " probe fails."
		a.Because(a.Object, "spec.containers["+c.Name+"]."+kindName+"Probe.failureThreshold", fmt.Sprint(max(1, probe.FailureThreshold)),
			time.Time{})
	}
	if e := stop.event; e != nil {
		text := e.Message
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		a.Because(a.Object, "event "+e.Reason, text, e.Time)
	}
	a.Do(probeAdvice)
}

// failure returns what an Event about a probe says, without the mark that it stands for several.
func failure(e *lookup.Event) string {
	return answer.Sentence(strings.TrimPrefix(e.Message, "(combined from similar events): "))
}

// stoppingProbe returns the probe of a container whose failure makes the node end it, and what kind it is; nil if there is none.
func stoppingProbe(p *corev1.Pod, container string) (kindName string, probe *corev1.Probe) {
	for _, s := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		switch {
		case s.Name != container:
		case s.LivenessProbe != nil:
			return "liveness", s.LivenessProbe
		case s.StartupProbe != nil:
			return "startup", s.StartupProbe
		}
	}
	return "", nil
}

// endedBySignal tells whether a container ended as it does when the node ends it: by SIGTERM, or after its grace period by SIGKILL.
func endedBySignal(end *corev1.ContainerStateTerminated) bool {
	return end.ExitCode == 137 || end.ExitCode == 143 || end.Signal == 9 || end.Signal == 15
}

// AddRestart adds to the cause that a container which runs has been restarted in the last hour, how often, and why as far as that is known.
func (r *Explainer) AddRestart(p *corev1.Pod, c *corev1.ContainerStatus, a *answer.Answer, events []lookup.Event) {
	last := c.LastTerminationState.Terminated
	if last == nil || r.Now.Sub(last.FinishedAt.Time) >= time.Hour {
		return
	}
	a.Cause += fmt.Sprintf(" A container has been restarted %s; the last time, %s ago, %s.",
		answer.Plural(int(max(1, c.RestartCount)), "time"), answer.Ago(r.Now, last.FinishedAt.Time), Ended(c.Name, last))
	a.Because(a.Object, statusField(p, c.Name)+".lastState.terminated", Terminated(last), last.FinishedAt.Time)
	a.Because(a.Object, statusField(p, c.Name)+".restartCount", fmt.Sprint(c.RestartCount), time.Time{})
	if last.Reason != "OOMKilled" {
		r.addStop(p, c, last, a, events)
		if a.State == answer.Waiting && c.RestartCount > 1 && stopByProbe(events, p, c.Name, last).isKnown {
			a.State = answer.Stuck // the next end is only a matter of time
		}
	}
	a.Do("kubectl logs %s%s -c %s --previous", p.Name, answer.InNamespace(p.Namespace), c.Name)
}
