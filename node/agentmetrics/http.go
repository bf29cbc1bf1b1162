package agentmetrics

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Instrument returns a handler that counts the requests to another one. The label path is the first part of the path if it is
// one of paths, otherwise "other", so that clients cannot make up labels.
func (m *Metrics) Instrument(next http.Handler, paths []string) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, long := requestPath(r.URL.Path, paths), "false"
		switch path {
		case "exec", "attach", "portforward", "debug":
			long = "true"
		}
		labels := []string{requestMethod(r.Method), path, "readwrite", long}
		m.requests.WithLabelValues(labels...).Inc()
		active := m.inFlight.WithLabelValues(labels...)
		active.Inc()
		defer active.Dec()
		began := time.Now()
		defer func() { m.requestTimes.WithLabelValues(labels...).Observe(time.Since(began).Seconds()) }()
		next.ServeHTTP(w, r)
	})
}

// requestPath returns the label of a path: its first part, and of metrics the second, too.
func requestPath(path string, known []string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	root := parts[0]
	if root == "metrics" && len(parts) > 1 {
		root += "/" + parts[1]
	}
	if slices.Contains(known, root) {
		return root
	}
	return "other"
}

func requestMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodTrace, http.MethodOptions,
		http.MethodConnect:
		return m
	}
	return "other"
}
