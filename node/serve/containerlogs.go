package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/stream"
	"proa.dev/node/fact"
	"proa.dev/node/logs"
	"proa.dev/node/pod"
)

// containerLogs writes the log of a container.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if tail := q.Get("tail"); tail == "all" {
		q.Del("tailLines")
	} else if tail != "" { // its name in the first versions
		q.Set("tailLines", tail)
	}
	o, err := stream.Log(q)
	if err != nil {
		refuse(w, `{"message": "Unable to decode query."}`, http.StatusBadRequest)
		return
	}
	if len(stream.CheckLog(o)) > 0 {
		refuse(w, `{"message": "Invalid request."}`, http.StatusUnprocessableEntity)
		return
	}
	l, found := s.find(r)
	if !found {
		refuse(w, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")), http.StatusNotFound)
		return
	}
	name := r.PathValue("container")
	if specOf(l.Pod, name) == nil {
		refuse(w, fmt.Sprintf("container %q not found in pod %q", name, l.Pod.Name), http.StatusNotFound)
		return
	}
	log, err := s.log(r.Context(), l, name, o)
	if err != nil {
		refuse(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	out := &lines{ResponseWriter: w}
	if o.Follow {
		out.flush() // whoever follows learns at once that there is something to follow
	}
	err = s.logs.Read(r.Context(), log, logs.OptionsOf(o, time.Now()), out, out.flush)
	switch {
	case err == nil || r.Context().Err() != nil:
	case !out.begun:
		refuse(w, err.Error(), http.StatusBadRequest)
	default:
		fmt.Fprintln(w, err)
	}
}

// log finds the log that is wanted. What the runtime has is newer than what the status says, but only the status says why there
// is none, and which run was the one before.
func (s *Server) log(ctx context.Context, l pod.Local, name string, o *corev1.PodLogOptions) (logs.Log, error) {
	if l.Facts != nil && !o.Previous {
		if c, found := l.Facts.Of(name); found && c.LogPath != "" && (c.State == fact.Running || c.State == fact.Exited && !c.Started.IsZero()) {
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

// lines remembers whether the answer has begun.
type lines struct {
	http.ResponseWriter
	begun bool
}

// Write writes to the client.
func (l *lines) Write(b []byte) (int, error) {
	l.begun = l.begun || len(b) > 0
	return l.ResponseWriter.Write(b)
}

func (l *lines) flush() {
	l.begun = true
	_ = http.NewResponseController(l.ResponseWriter).Flush() // it fails when the client has left
}
