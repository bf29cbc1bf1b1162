package server

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/stream"
	"proa.dev/server/authz"
	"proa.dev/server/discovery"
)

// servePath serves what is not a resource: discovery here, the rest by Paths.
func (s *Server) servePath(w *recorder, req *http.Request, who user.Info) {
	a := authz.Attributes{User: who, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	if err := s.allowed(req.Context(), &a, w.trail); err != nil {
		s.fail(w, req, err)
		return
	}
	if req.URL.Path == stream.TunnelPath && s.Nodes != nil {
		w.last()
		if err := s.Nodes.Open(w, req, who); err != nil {
			s.fail(w, req, err)
		}
		return
	}
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		req = req.WithContext(withReasons(req.Context()))
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	s.State.syncDefinitions()
	defs := s.State.defs.Load().all
	var doc runtime.Object
	switch {
	case parts[0] == "api" && len(parts) == 1:
		if wantsAggregated(req) {
			s.aggregated(w, req, discovery.Aggregated(defs, true))
			return
		}
		doc = discovery.Versions(s.Address)
	case parts[0] == "apis" && len(parts) == 1:
		if wantsAggregated(req) {
			s.aggregated(w, req, s.allGroups(defs))
			return
		}
		doc = s.groupList(defs)
	case parts[0] == "apis" && len(parts) == 3 && s.servedElsewhere(schema.GroupVersion{Group: parts[1], Version: parts[2]}):
		w.send()
		w.seat.free()
		s.Aggregated.Pass(w, req, schema.GroupVersion{Group: parts[1], Version: parts[2]}, who)
		return
	case parts[0] == "apis" && len(parts) <= 3 && s.group(defs, parts[1]) == nil:
		s.Paths.ServeHTTP(w, req) // the router of resources knows nothing of it
		return
	case parts[0] == "apis" && len(parts) == 2:
		doc = s.group(defs, parts[1])
	case parts[0] == "api" && len(parts) == 2:
		if l := discovery.Resources(defs, schema.GroupVersion{Version: parts[1]}); l != nil {
			doc = l
		}
	case parts[0] == "apis" && len(parts) == 3:
		if l := discovery.Resources(defs, schema.GroupVersion{Group: parts[1], Version: parts[2]}); l != nil {
			doc = l
		}
	case parts[0] == "version" && len(parts) == 1 && req.Method != http.MethodGet:
		s.fail(w, req, methodNotAllowed())
		return
	default:
		s.Paths.ServeHTTP(w, req)
		return
	}
	if doc == nil {
		s.fail(w, req, noSuchResource())
		return
	}
	if req.Method != http.MethodGet {
		s.fail(w, req, methodNotAllowed())
		return
	}
	f, err := negotiate(req, false, false, false)
	if err != nil {
		s.fail(w, req, err)
		return
	}
	var buf bytes.Buffer
	e := &encoder{codec: s.State.Codec, f: f}
	if err := e.raw(&buf, doc); err != nil {
		s.fail(w, req, err)
		return
	}
	w.Header().Add("Vary", "Accept")
	send(w, req, http.StatusOK, f.media.ContentType(), buf.Bytes())
}

const aggregatedAs = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// wantsAggregated says whether the client's first choice is the aggregated document.
func wantsAggregated(req *http.Request) bool {
	for clause := range strings.SplitSeq(req.Header.Get("Accept"), ",") {
		clause = strings.ReplaceAll(clause, " ", "")
		if strings.Contains(clause, "as=APIGroupDiscoveryList") {
			if strings.Contains(clause, "v=v2;") || strings.HasSuffix(clause, "v=v2") || strings.Contains(clause, "v=v2,") {
				return true
			}
			continue // an older version that is no longer served
		}
		return false
	}
	return false
}

// aggregated sends the aggregated document with an ETag, so that clients need not read it again.
func (s *Server) aggregated(w *recorder, req *http.Request, l *apidiscoveryv2.APIGroupDiscoveryList) {
	body, err := json.Marshal(l)
	if err != nil {
		s.fail(w, req, err)
		return
	}
	etag := fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(body)))
	h := w.Header()
	h.Add("Vary", "Accept")
	h.Set("Etag", etag)
	h.Set("Cache-Control", "public")
	if req.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	media := codec.JSON
	if strings.HasPrefix(req.Header.Get("Accept"), codec.Proto.ContentType()) {
		var buf bytes.Buffer
		if err := s.State.Codec.Append(&buf, codec.Proto, l); err == nil {
			media, body = codec.Proto, buf.Bytes()
		}
	}
	if !w.lease.Grow(int64(len(body))) {
		h.Del("Etag")
		h.Set("Cache-Control", "no-cache, private")
		s.fail(w, req, tooMany())
		return
	}
	send(w, req, http.StatusOK, media.ContentType()+";"+aggregatedAs, body)
}
