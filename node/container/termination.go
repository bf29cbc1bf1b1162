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

// The limits of termination messages, in bytes and lines.
const (
	maxMessage  = 4096
	maxLogBytes = 2048
	maxLogLines = 80
	maxOfPod    = 12 * 1024
	logWindow   = 64 * 1024 // larger than maxLogLines lines whose last maxLogBytes bytes count
)

// TerminationMessage returns the message of a container that has ended: that of the runtime, followed by the container's own
// termination message.
func TerminationMessage(st *cri.ContainerStatus) string {
	file, path := "", absolute(st.Annotations[annotationMessagePath])
	if st.Annotations[annotationMessagePath] != "" {
		for _, mount := range st.Mounts {
			if mount.ContainerPath == path {
				file = mount.HostPath
			}
		}
	}
	policy := corev1.TerminationMessagePolicy(st.Annotations[annotationMessagePolicy])
	if st.Reason == "ContainerCannotRun" || st.Reason == "StartError" {
		policy = corev1.TerminationMessageReadFile // it never ran, so its log says nothing
	}
	last := ReadTerminationMessage(file, policy, st.LogPath, st.ExitCode)
	if st.Message == "" || last == "" {
		return st.Message + last
	}
	return st.Message + ": " + last
}

// ReadTerminationMessage returns the termination message of a container: the end of the file it wrote, or, if it failed without
// writing one and its policy allows it, the end of its log. file is empty for a container that has none.
func ReadTerminationMessage(file string, policy corev1.TerminationMessagePolicy, log string, exitCode int32) string {
	if file != "" {
		text, err := tail(file, maxMessage)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("Error on reading termination log %s: %v", file, err)
		}
		if len(text) > 0 {
			return validUTF8(text)
		}
	}
	if policy != corev1.TerminationMessageFallbackToLogsOnError || exitCode == 0 || log == "" {
		return ""
	}
	text, err := tail(log, logWindow)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return validUTF8(lastLines(text, len(text) == logWindow))
}

// tail reads the end of a regular file. Symbolic links are not followed, because containers can write there.
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

// lastLines extracts the text of the last lines of a log in the format of CRI: time, stream, tag, text. cutOff says
// that the first line is incomplete.
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

// validUTF8 replaces invalid UTF-8, which objects cannot hold.
func validUTF8(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// TruncateMessages limits the total size of the termination messages of a Pod to what its status may hold.
func TruncateMessages(p *corev1.Pod, st *corev1.PodStatus) {
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
