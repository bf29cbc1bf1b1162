package container

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
)

// The bounds of last messages, in bytes and lines.
const (
	maxMessage  = 4096
	maxLogBytes = 2048
	maxLogLines = 80
	maxOfPod    = 12 * 1024
	logWindow   = 64 * 1024 // more than so many lines of which so many bytes count can take
)

// Said is what there is to read about a container that ended: what the runtime says, and the container's own last message.
func Said(st *cri.ContainerStatus) string {
	file, path := "", absolute(st.Annotations[notePath])
	if st.Annotations[notePath] != "" {
		for _, mount := range st.Mounts {
			if mount.ContainerPath == path {
				file = mount.HostPath
			}
		}
	}
	policy := corev1.TerminationMessagePolicy(st.Annotations[notePolicy])
	if st.Reason == "ContainerCannotRun" || st.Reason == "StartError" {
		policy = corev1.TerminationMessageReadFile // it never ran, so its log says nothing
	}
	last := Termination(file, policy, st.LogPath, st.ExitCode)
	if st.Message == "" || last == "" {
		return st.Message + last
	}
	return st.Message + ": " + last
}

// Termination is the last message of a container: the end of the file it wrote, or, if it failed without writing and its policy
// says so, the end of its log. file is "" for a container that has none.
func Termination(file string, policy corev1.TerminationMessagePolicy, log string, exitCode int32) string {
	if file != "" {
		text, err := tail(file, maxMessage)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("Error on reading termination log %s: %v", file, err)
		}
		if len(text) > 0 {
			return clean(text)
		}
	}
	if policy != corev1.TerminationMessageFallbackToLogsOnError || exitCode == 0 || log == "" {
		return ""
	}
	text, err := tail(log, logWindow)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return clean(lastLines(text, len(text) == logWindow))
}

// tail reads the end of a regular file. What containers can reach is never followed elsewhere.
func tail(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
}

// lastLines takes the text out of the last lines of a log as runtimes write it: a time, a stream, a tag, and the text. cutOff says
// that the first line is not whole.
func lastLines(log []byte, cutOff bool) []byte {
	lines := bytes.SplitAfter(log, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	if cutOff && len(lines) > 1 {
		lines = lines[1:]
	}
	var out []byte
	for _, line := range lines[max(0, len(lines)-maxLogLines):] {
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 4 {
			continue
		}
		text := parts[3]
		if partial := bytes.HasPrefix(parts[2], []byte("P")); partial {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		out = append(out, text...)
	}
	return out[max(0, len(out)-maxLogBytes):]
}

// clean makes text that an object can hold.
func clean(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// Shorten keeps the last messages of all containers of a Pod together below what an object may hold of them.
func Shorten(p *corev1.Pod, st *corev1.PodStatus) {
	most := maxOfPod / max(1, len(p.Spec.Containers)+len(p.Spec.InitContainers)+len(p.Spec.EphemeralContainers))
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			for _, t := range []*corev1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if t != nil && len(t.Message) > most {
					t.Message = strings.ToValidUTF8(t.Message[:most], "")
				}
			}
		}
	}
}
