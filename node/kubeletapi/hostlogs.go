package kubeletapi

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// hostLogs serves the files of the machine's log folder, and its listing. Symbolic links that lead out of the folder
// are not followed: a Pod that may write into the folder must not choose which file of the machine a client is shown.
func (s *Server) hostLogs(w http.ResponseWriter, r *http.Request) {
	if s.HostLogs == "" {
		sendError(w, "logs endpoint is disabled.", http.StatusMethodNotAllowed)
		return
	}
	root, err := os.OpenRoot(s.HostLogs)
	switch {
	case errors.Is(err, os.ErrNotExist):
		http.NotFound(w, r)
		return
	case err != nil:
		sendError(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer root.Close()
	// Opening a named pipe blocks until it has a writer, and a Pod that may write into the folder can make one.
	info, err := root.Stat(filepath.Clean(strings.TrimPrefix(r.URL.Path, "/logs/")))
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix("/logs/", http.FileServerFS(root.FS())).ServeHTTP(w, r)
}
