// Package logs reads and rotates the logs that the runtime writes for containers: one file for each run of a container,
// in the format of the CRI. Rotated files belong to the log: a reader sees them all, the oldest first, compressed or
// not.
package logs

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/duration"
)

// Options say which part of a log is wanted.
type Options struct {
	// Tail is the number of lines from the end to begin with; negative for the whole log.
	Tail int64
	// Limit is the number of bytes after which to stop; 0 for no limit.
	Limit int64
	// Since leaves out older lines; zero for none.
	Since time.Time
	// Follow continues until the container has ended.
	Follow bool
	// Timestamps begins each line with its time.
	Timestamps bool
	// Stream is Stdout or Stderr to see that stream only; empty for both.
	Stream Stream
}

// ContainerEnds reports the ends of containers.
type ContainerEnds interface {
	// Ended returns a channel that is closed when a container has ended and all its output is in its log. The channel
	// may also be closed if that is unknown.
	Ended(ctx context.Context, id string) <-chan struct{}
}

// OptionsOf returns the options of a request, which must be valid.
func OptionsOf(o *corev1.PodLogOptions, now time.Time) Options {
	out := Options{Tail: -1, Follow: o.Follow, Timestamps: o.Timestamps}
	if o.TailLines != nil {
		out.Tail = *o.TailLines
	}
	if o.LimitBytes != nil {
		out.Limit = *o.LimitBytes
	}
	switch {
	case o.SinceSeconds != nil:
		out.Since = now.Add(-duration.FromSeconds(*o.SinceSeconds))
	case o.SinceTime != nil:
		out.Since = o.SinceTime.Time
	}
	if o.Stream != nil {
		switch *o.Stream {
		case corev1.LogStreamStdout:
			out.Stream = Stdout
		case corev1.LogStreamStderr:
			out.Stream = Stderr
		}
	}
	return out
}

// Container finds the run of a container whose log is requested, by the status of its Pod: the newest one, or the
// previous one. The id begins with the name of the runtime.
func Container(p *corev1.Pod, name string, previous bool) (id string, err error) {
	st := statusOf(p, name)
	if st == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", name, p.Name)
	}
	last := ""
	if t := st.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	switch s := &st.State; {
	case previous && last == "":
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case previous:
		id = last
	case s.Running != nil:
		id = st.ContainerID
	case s.Terminated != nil && s.Terminated.ContainerID != "":
		id = s.Terminated.ContainerID
	case s.Terminated != nil || st.LastTerminationState.Terminated != nil:
		if id = last; id == "" {
			return "", fmt.Errorf("container %q in pod %q is terminated", name, p.Name)
		}
	case s.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.Name, describeWaiting(s.Waiting.Reason))
	default:
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, p.Name)
	}
	return id, nil
}

// describeWaiting describes the reason of a waiting container.
func describeWaiting(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

func statusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses,
		p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
