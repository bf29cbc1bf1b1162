package openapi

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"

	"proa.dev/server/openapi/openapiproto"
)

// format is one encoding of a document.
type format struct {
	accept []string             // media types that ask for it
	media  string               // media type of the response
	encode openapiproto.Encoder // nil for JSON
}

func formats(version string, encode openapiproto.Encoder) []format {
	name := "application/com.github.proto-openapi.spec." + version
	return []format{
		{accept: []string{"application/json"}, media: "application/json"},
		{accept: []string{name + "@v1.0+protobuf", name + ".v1.0+protobuf"}, media: name + ".v1.0+protobuf", encode: encode},
	}
}

// Handler serves /openapi/v2, /openapi/v3 and everything below them.
func (s *Service) Handler(log *slog.Logger) http.Handler {
	v2, v3 := formats("v2", openapiproto.NewV2()), formats("v3", openapiproto.NewV3())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		var err error
		path := strings.TrimSuffix(r.URL.Path, "/")
		name, isV3 := strings.CutPrefix(path, "/openapi/v3/")
		switch {
		case path == "/openapi/v2":
			err = s.serveV2(w, r, v2)
		case path == "/openapi/v3":
			err = s.serveIndex(w, r)
		case isV3:
			err = s.serveV3(w, r, name, v3)
		default:
			http.NotFound(w, r)
		}
		if err != nil {
			log.Error("openapi document", "path", r.URL.Path, "err", err)
			http.Error(w, "the document could not be made", http.StatusServiceUnavailable)
		}
	})
}

// builtInTags returns the ETags of the documents without groups that are not built in.
func (s *Service) builtInTags() map[string]string {
	tags := map[string]string{}
	for name := range s.root() {
		tags[name] = s.etag(name)
	}
	for name, gv := range s.groupVersions(nil) {
		tags[name] = s.etag(name, gv.resources)
	}
	return tags
}

// tags returns the ETag of every v3 document by its name.
func (s *Service) tags() map[string]string {
	tags := maps.Clone(s.builtIn())
	for name, gv := range s.groupVersions(s.groups()) {
		if gv.tag != "" {
			tags[name] = s.etag(name, tags[name], gv.tag)
		}
	}
	return tags
}

// tag returns the ETag of one v3 document.
func (s *Service) tag(name string) (string, bool) {
	tag, ok := s.builtIn()[name]
	if gv := s.groupVersions(s.groups())[name]; gv.tag != "" {
		return s.etag(name, tag, gv.tag), true
	}
	return tag, ok
}

func documentURL(name, etag string) string {
	u := url.URL{Path: "/openapi/v3/" + name, RawQuery: url.Values{"hash": {etag}}.Encode()}
	return u.String()
}

func (s *Service) serveIndex(w http.ResponseWriter, r *http.Request) error {
	tags := s.tags()
	s.cache.removeStale(tags)
	paths := object{}
	for name, etag := range tags {
		paths[name] = object{"serverRelativeURL": documentURL(name, etag)}
	}
	raw, err := encode(object{"paths": paths})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // the content type that clients of Kubernetes expect of the index
	w.Header().Set("Etag", strconv.Quote(s.etag("index", tags)))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(raw))
	return nil
}

func (s *Service) serveV3(w http.ResponseWriter, r *http.Request, name string, formats []format) error {
	etag, ok := s.tag(name)
	if !ok {
		http.NotFound(w, r)
		return nil
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != etag {
			w.Header().Add("Vary", "Accept")
			http.Redirect(w, r, documentURL(name, etag), http.StatusMovedPermanently)
			return nil
		}
		// The content of a name with its hash never changes.
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	return s.serve(w, r, servedDocument{"v3/" + name, etag, formats,
		func(w io.Writer, encode openapiproto.Encoder) error { return s.writeV3(name, w, encode) }})
}

func (s *Service) serveV2(w http.ResponseWriter, r *http.Request, formats []format) error {
	tags := s.tags()
	names := slices.Sorted(maps.Keys(tags))
	parts := make([]any, 0, len(names))
	for _, n := range names {
		parts = append(parts, tags[n])
	}
	return s.serve(w, r, servedDocument{"v2", s.etag("v2", parts...), formats, s.writeV2})
}

// build writes a document in one format; the encoder is nil for JSON.
type build func(io.Writer, openapiproto.Encoder) error

// servedDocument is a document that can be served in several formats.
type servedDocument struct {
	key     string // in the cache
	etag    string
	formats []format
	build   build
}

// serve responds with the document in the first format that the client accepts, compressed if it accepts gzip.
func (s *Service) serve(w http.ResponseWriter, r *http.Request, d servedDocument) error {
	w.Header().Add("Vary", "Accept")
	w.Header().Add("Vary", "Accept-Encoding")
	f := negotiate(r.Header.Get("Accept"), d.formats)
	if f == nil {
		w.WriteHeader(http.StatusNotAcceptable)
		return nil
	}
	w.Header().Set("Etag", strconv.Quote(d.etag))
	if strings.Contains(r.Header.Get("If-None-Match"), d.etag) {
		w.WriteHeader(http.StatusNotModified) // known without building the document
		return nil
	}
	doc, err := s.cache.get(d.key+" "+f.media, d.etag, func(w io.Writer) error { return d.build(w, f.encode) })
	if err != nil {
		w.Header().Del("Etag")
		return err
	}
	w.Header().Set("Content-Type", f.media)
	if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		return unpack(w, r, doc)
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", strconv.Itoa(len(doc.gzip)))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(doc.gzip))
	return nil
}

// unpack responds with the uncompressed document, which is large and never in memory as a whole.
func unpack(w http.ResponseWriter, r *http.Request, doc compressed) error {
	z, err := gzip.NewReader(bytes.NewReader(doc.gzip))
	if err != nil {
		return fmt.Errorf("openapi: decompress: %w", err)
	}
	w.Header().Set("Content-Length", strconv.FormatInt(doc.size, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = io.Copy(w, z) // the client may disconnect; the document itself was compressed here
	return nil
}

// negotiate returns the format for an Accept header, or nil.
func negotiate(accept string, formats []format) *format {
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for i := range formats {
			for _, have := range formats[i].accept {
				typ, sub, _ := strings.Cut(have, "/")
				if (clause.Type == typ || clause.Type == "*") && (clause.SubType == sub || clause.SubType == "*") {
					return &formats[i]
				}
			}
		}
	}
	return nil
}

// acceptsGzip reports whether an Accept-Encoding header allows gzip.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" {
			q, _ := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			v, err := strconv.ParseFloat(q, 64)
			return err != nil || v > 0
		}
	}
	return false
}
