package serve

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// hostLogs shows the files of the machine's log folder, and lists it. Links that lead out of the folder are not followed: a Pod that may
// write into the folder must not choose which file of the machine somebody is shown.
func (s *Server) hostLogs(w http.ResponseWriter, r *http.Request) {
	if s.HostLogs == "" {
		refuse(w, "logs endpoint is disabled.", http.StatusMethodNotAllowed)
		return
	}
	root, err := os.OpenRoot(s.HostLogs)
	switch {
	case errors.Is(err, os.ErrNotExist):
		http.NotFound(w, r)
		return
	case err != nil:
		refuse(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer root.Close()
	// To open a pipe waits for whoever writes into it, and a Pod that may write into the folder can make one.
	info, err := root.Stat(filepath.Clean(strings.TrimPrefix(r.URL.Path, "/logs/")))
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix("/logs/", http.FileServerFS(root.FS())).ServeHTTP(w, r)
}
