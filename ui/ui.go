// Package ui holds the dashboard: static HTML, CSS and JavaScript without dependencies, and the handler that serves them. The
// files contain nothing about a cluster. The page reads everything from the Kubernetes API with the rights of its viewer.
package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// Path is the path under which the dashboard is served.
const Path = "/dashboard/"

// ContentSecurityPolicy lets the page load its own files and speak to its own server, and nothing else. No text can become markup
// or script: inline script and style are refused, and browsers with Trusted Types refuse to parse text as HTML.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Via says who serves the page. The page asks for a bearer token when it is the API server, and for a code when it is the proxy of
// "proa dashboard".
type Via string

// The servers of the page.
const (
	Server Via = "server"
	Proxy  Via = "proxy"
)

// Handler serves the files of the dashboard.
type Handler struct {
	files map[string]*file
	// documentPolicy is the content security policy of the document, which has its style and two scripts in it.
	documentPolicy string
}

// New returns the handler of a server. Files are compressed when they are first asked for.
func New(via Via) (*Handler, error) {
	h := &Handler{files: map[string]*file{}}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		h.files[strings.TrimPrefix(name, "static/")] = &file{data: data, contentType: contentType(path.Ext(name))}
		return nil
	})
	if err != nil {
		return nil, err
	}
	index := h.files[indexName]
	index.data = bytes.Replace(index.data, []byte(`data-via="server"`), []byte(`data-via="`+string(via)+`"`), 1)
	if err := h.inline(); err != nil {
		return nil, err
	}
	return h, nil
}

const indexName = "index.html"

// inline puts the style, the script that chooses the theme and the one that loads the modules into the document, so that the browser needs
// nothing else to paint the page. The policy of the document names their hashes: no other style or script in a document is accepted.
func (h *Handler) inline() error {
	h.documentPolicy = ContentSecurityPolicy
	index := h.files[indexName]
	for _, part := range []struct{ name, reference, element, directive string }{
		{"style.css", `<link rel="stylesheet" href="style.css">`, "style", "style-src"},
		{"theme.js", `<script src="theme.js"></script>`, "script", "script-src"},
		{"start.js", `<script src="start.js"></script>`, "script", "script-src"},
	} {
		text := h.files[part.name].data
		if !bytes.Contains(index.data, []byte(part.reference)) || bytes.Contains(text, []byte("</")) {
			return fmt.Errorf("%s cannot be put into %s", part.name, indexName)
		}
		whole := slices.Concat([]byte("<"+part.element+">"), text, []byte("</"+part.element+">"))
		index.data = bytes.Replace(index.data, []byte(part.reference), whole, 1)
		sum := sha256.Sum256(text)
		hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		h.documentPolicy = strings.Replace(h.documentPolicy, part.directive+" 'self'", part.directive+" 'self' "+hash, 1)
	}
	return nil
}

// contentType returns the media type of a file, by the end of its name.
func contentType(extension string) string {
	switch extension {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// file is one file of the dashboard.
type file struct {
	data        []byte
	contentType string

	once       sync.Once
	etag       string
	compressed []byte
}

// prepare computes the ETag and the compressed form.
func (f *file) prepare() {
	sum := sha256.Sum256(f.data)
	f.etag = `"` + hex.EncodeToString(sum[:16]) + `"`
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(f.data)
	if err == nil && z.Close() == nil && buf.Len() < len(f.data) {
		f.compressed = buf.Bytes()
	}
}

// SetSecurityHeaders sets the headers that every answer about the dashboard has: which sources the page may load, that it is
// never in a frame, and that its address is told to nobody.
func SetSecurityHeaders(head http.Header) {
	head.Set("Content-Security-Policy", ContentSecurityPolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

// Owns says that a path belongs to the dashboard.
func Owns(urlPath string) bool {
	return urlPath == strings.TrimSuffix(Path, "/") || strings.HasPrefix(urlPath, Path)
}

// ServeHTTP serves a file of the dashboard.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	head := w.Header()
	SetSecurityHeaders(head)
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "the dashboard can only be read", http.StatusMethodNotAllowed)
		return
	}
	name, inside := strings.CutPrefix(req.URL.Path, Path)
	if !inside {
		http.Redirect(w, req, Path, http.StatusPermanentRedirect)
		return
	}
	if name == "" {
		name = indexName
	}
	f := h.files[name]
	if f == nil {
		http.Error(w, "the dashboard has no such file", http.StatusNotFound)
		return
	}
	if name == indexName {
		head.Set("Content-Security-Policy", h.documentPolicy)
	}
	f.once.Do(f.prepare)
	head.Set("Etag", f.etag)
	head.Set("Cache-Control", "no-cache") // browsers keep it, and ask whether it has changed
	head.Add("Vary", "Accept-Encoding")
	if req.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.data
	if f.compressed != nil && acceptsGzip(req.Header.Get("Accept-Encoding")) {
		head.Set("Content-Encoding", "gzip")
		body = f.compressed
	}
	head.Set("Content-Type", f.contentType)
	head.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if req.Method == http.MethodGet {
		_, _ = w.Write(body) // a client that has gone needs no answer
	}
}

// acceptsGzip reads an Accept-Encoding header.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			return strings.ReplaceAll(parameters, " ", "") != "q=0"
		}
	}
	return false
}
