package kubeletapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/streamoptions"
	"proa.dev/node/fact"
	"proa.dev/node/logs"
	"proa.dev/node/pod"
)

// containerLogs serves the log of a container.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if tail := q.Get("tail"); tail == "all" {
		q.Del("tailLines")
	} else if tail != "" { // the parameter's name in the first versions
		q.Set("tailLines", tail)
	}
	o, err := streamoptions.ParseLog(q)
	if err != nil {
		sendError(w, `{"message": "Unable to decode query."}`, http.StatusBadRequest)
		return
	}
	if len(streamoptions.ValidateLog(o)) > 0 {
		sendError(w, `{"message": "Invalid request."}`, http.StatusUnprocessableEntity)
		return
	}
	l, found := s.find(r)
	if !found {
		sendError(w, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")), http.StatusNotFound)
		return
	}
	name := r.PathValue("container")
	if specOf(l.Pod, name) == nil {
		sendError(w, fmt.Sprintf("container %q not found in pod %q", name, l.Pod.Name), http.StatusNotFound)
		return
	}
	log, err := s.log(r.Context(), l, name, o)
	if err != nil {
		sendError(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	out := &trackedWriter{ResponseWriter: w}
	if o.Follow {
		out.flush() // a client that follows learns at once that the stream is open
	}
	err = s.logs.Read(r.Context(), log, logs.OptionsOf(o, time.Now()), out, out.flush)
	switch {
	case err == nil || r.Context().Err() != nil:
	case !out.begun:
		sendError(w, err.Error(), http.StatusBadRequest)
	default:
		fmt.Fprintln(w, err)
	}
}

// log finds the log file of a container. The facts of the runtime are newer than the status, but only the status says
// why there is no log, and which run was the previous one.
func (s *Server) log(ctx context.Context, l pod.Local, name string, o *corev1.PodLogOptions) (logs.Log, error) {
	if l.Facts != nil && !o.Previous {
		if c, found := l.Facts.Of(name); found && c.LogPath != "" &&
			(c.State == fact.Running || c.State == fact.Exited && !c.Started.IsZero()) {
			return logs.Log{Path: c.LogPath, ID: c.ID}, nil
		}
	}
	full, err := logs.Container(l.Pod, name, o.Previous)
	if err != nil {
		return logs.Log{}, err
	}
	_, id, _ := strings.Cut(full, "://")
	if l.Facts != nil {
		for i := range l.Facts.Containers {
			if c := &l.Facts.Containers[i]; c.ID == id && c.LogPath != "" {
				return logs.Log{Path: c.LogPath, ID: id}, nil
			}
		}
	}
	path, err := s.Runtime.LogPath(ctx, id)
	if err != nil || path == "" {
		return logs.Log{}, fmt.Errorf("unable to retrieve container logs for %s", full)
	}
	return logs.Log{Path: path, ID: id}, nil
}

// trackedWriter is a response writer that remembers whether the response has begun.
type trackedWriter struct {
	http.ResponseWriter
	begun bool
}

// Write writes to the client.
func (l *trackedWriter) Write(b []byte) (int, error) {
	l.begun = l.begun || len(b) > 0
	return l.ResponseWriter.Write(b)
}

func (l *trackedWriter) flush() {
	l.begun = true
	_ = http.NewResponseController(l.ResponseWriter).Flush() // it fails if the client has disconnected
}
