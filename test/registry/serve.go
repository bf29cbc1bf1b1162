package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxManifest is the length of the longest manifest that registries take.
const maxManifest = 4 << 20

// handler answers the part of the distribution protocol that pulls.
func (r *Registry) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		if req.URL.Path == "/token" && r.options.Auth == Token {
			r.token(w, req)
			return
		}
		path, ok := strings.CutPrefix(req.URL.Path+"/", "/v2/")
		if !ok {
			http.NotFound(w, req)
			return
		}
		repository, kind, what := parse(path)
		if !r.allowed(w, req, repository) {
			return
		}
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry only serves; add images with Add")
			return
		}
		switch kind {
		case "":
			fmt.Fprint(w, "{}")
		case "manifests":
			r.manifest(w, req, repository, what)
		case "blobs":
			r.blob(w, req, repository, what)
		case "tags":
			r.listTags(w, repository)
		case "_catalog":
			r.catalog(w)
		case "referrers":
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			fmt.Fprint(w, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
		default:
			http.NotFound(w, req)
		}
	})
}

// parse takes the path below /v2/ apart. The name of a repository may have
// slashes in it, so the end of the path tells what is asked for.
func parse(path string) (repository, kind, what string) {
	path = strings.Trim(path, "/")
	if path == "" || path == "_catalog" {
		return "", path, ""
	}
	parts := strings.Split(path, "/")
	n := len(parts)
	if n < 3 {
		return "", "unknown", ""
	}
	return strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]
}

// fail answers with an error as the protocol writes it.
func fail(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	type one struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.NewEncoder(w).Encode(map[string][]one{"errors": {{code, text}}}) // a client that is gone needs no answer
}

func (r *Registry) manifest(w http.ResponseWriter, req *http.Request, repository, reference string) {
	digest := reference
	if !strings.Contains(reference, ":") {
		digest = r.resolve(repository, reference)
	}
	blob, there := r.find(digest)
	if !there || !r.has(repository) || blob.Size() > maxManifest {
		fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown to this registry: "+repository+" "+reference)
		return
	}
	data, err := io.ReadAll(blob)
	if err != nil {
		fail(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	var head struct{ MediaType string }
	if err := json.Unmarshal(data, &head); err != nil || head.MediaType == "" {
		fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", digest+" is not a manifest")
		return
	}
	w.Header().Set("Content-Type", head.MediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	r.send(w, req, answer{repository: repository, kind: Manifests, content: bytes.NewReader(data), size: int64(len(data))})
}

func (r *Registry) blob(w http.ResponseWriter, req *http.Request, repository, digest string) {
	blob, there := r.find(digest)
	if !there || !r.has(repository) {
		fail(w, http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown to this registry: "+digest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", digest)
	r.send(w, req, answer{repository: repository, kind: Blobs, content: blob, size: blob.Size()})
}

// find finds a blob among those that the registry has made and in its archives.
func (r *Registry) find(digest string) (*io.SectionReader, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if data, ok := r.made[digest]; ok {
		return io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), true
	}
	for _, a := range r.archives {
		if blob, ok := a.Blob(digest); ok {
			return blob, true
		}
	}
	return nil, false
}

// has tells whether there is a repository.
func (r *Registry) has(repository string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.tags {
		if strings.HasPrefix(name, repository+":") {
			return true
		}
	}
	return false
}

func (r *Registry) listTags(w http.ResponseWriter, repository string) {
	if !r.has(repository) {
		fail(w, http.StatusNotFound, "NAME_UNKNOWN", "repository unknown to this registry: "+repository)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tags := []string{}
	for name := range r.tags {
		if tag, ok := strings.CutPrefix(name, repository+":"); ok {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	_ = json.NewEncoder(w).Encode(map[string]any{"name": repository, "tags": tags}) // a client that is gone needs no answer
}

func (r *Registry) catalog(w http.ResponseWriter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]bool{}
	for name := range r.tags {
		repository, _, _ := strings.Cut(name, ":")
		all[repository] = true
	}
	_ = json.NewEncoder(w).Encode(map[string][]string{"repositories": slices.Sorted(maps.Keys(all))}) // as above
}

// answer is something to send.
type answer struct {
	repository string
	kind       Kind
	content    io.ReadSeeker
	size       int64
}

// send sends content the way the registry is told to: with a fault, slowly, or
// as it should be.
func (r *Registry) send(w http.ResponseWriter, req *http.Request, a answer) {
	defer r.begin(a, req.Method)()
	switch r.takeFault(a) {
	case ServerError:
		fail(w, http.StatusInternalServerError, "UNKNOWN", "this registry was told to fail")
		return
	case TooManyRequests:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "this registry was told to fail")
		return
	case Hang:
		<-req.Context().Done()
		return
	case Truncated:
		// The connection ends before the length that was promised.
		w.Header().Set("Content-Length", fmt.Sprint(a.size))
		_, _ = io.CopyN(w, a.content, a.size/2) // cut off on purpose
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case WrongBytes:
		data, err := io.ReadAll(a.content)
		if err != nil || len(data) == 0 {
			panic(http.ErrAbortHandler)
		}
		data[len(data)/2] ^= 1
		a.content = bytes.NewReader(data)
	case none:
	}
	r.mu.Lock()
	rate := r.rate
	r.mu.Unlock()
	counted := &meter{ResponseWriter: w, stop: req.Context().Done(), rate: rate, count: func(n int) { r.sent(a.repository, n) }}
	http.ServeContent(counted, req, "", time.Time{}, a.content)
}

// meter counts what is sent, and holds it back to a rate.
type meter struct {
	http.ResponseWriter
	stop  <-chan struct{}
	rate  int
	count func(int)
}

// Write sends in twentieths of a second.
func (m *meter) Write(data []byte) (n int, err error) {
	for len(data) > 0 {
		part := data
		if m.rate > 0 {
			part = data[:min(len(data), max(1, m.rate/20))]
		}
		sent, err := m.ResponseWriter.Write(part)
		m.count(sent)
		n += sent
		if err != nil {
			return n, err
		}
		data = data[sent:]
		if m.rate > 0 {
			if f, ok := m.ResponseWriter.(http.Flusher); ok {
				f.Flush()
			}
			select {
			case <-m.stop:
				return n, http.ErrHandlerTimeout
			case <-time.After(time.Duration(sent) * time.Second / time.Duration(m.rate)):
			}
		}
	}
	return n, nil
}
