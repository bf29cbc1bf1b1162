package httpapi

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

	"proa.dev/kinds/lib/codec"
	"proa.dev/kinds/lib/streamoptions"
	"proa.dev/server/apidiscovery"
	"proa.dev/server/apistatus"
	"proa.dev/server/authz"
	"proa.dev/server/encode"
	"proa.dev/server/healthz"
	"proa.dev/server/negotiate"
	"proa.dev/server/responsewriter"
)

// servePath serves what is not a resource: the dashboard, discovery and the tunnels of nodes here, the rest by Paths.
func (s *Handler) servePath(w *responsewriter.Writer, req *http.Request, who user.Info) {
	if s.Dashboard != nil && isDashboard(req.URL.Path) { // a browser has no credentials before the page has asked for them
		s.Dashboard.ServeHTTP(w, req)
		return
	}
	a := authz.Attributes{User: who, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	if err := s.Server.AuthorizeAttributes(req.Context(), &a, w.Audit); err != nil {
		s.writeError(w, req, err)
		return
	}
	if req.URL.Path == streamoptions.TunnelPath && s.Nodes != nil {
		w.StartStreaming()
		if err := s.Nodes.Open(w, req, who); err != nil {
			s.writeError(w, req, err)
		}
		return
	}
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		req = req.WithContext(healthz.WithReasons(req.Context()))
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	defs := s.Server.State.Defs()
	var doc runtime.Object
	switch {
	case parts[0] == "api" && len(parts) == 1:
		if wantsAggregated(req) {
			s.writeAggregatedDiscovery(w, req, apidiscovery.Aggregated(defs, true))
			return
		}
		doc = apidiscovery.Versions(s.Address)
	case parts[0] == "apis" && len(parts) == 1:
		if wantsAggregated(req) {
			s.writeAggregatedDiscovery(w, req, s.aggregatedDiscovery(defs))
			return
		}
		doc = s.groupListDiscovery(defs)
	case parts[0] == "apis" && len(parts) == 3 && s.isAggregated(schema.GroupVersion{Group: parts[1], Version: parts[2]}):
		w.SendHeld()
		w.Seat.Free()
		s.Aggregated.Pass(w, req, schema.GroupVersion{Group: parts[1], Version: parts[2]}, who)
		return
	case parts[0] == "apis" && len(parts) <= 3 && s.groupDiscovery(defs, parts[1]) == nil:
		s.Paths.ServeHTTP(w, req) // as upstream answers for unknown groups
		return
	case parts[0] == "apis" && len(parts) == 2:
		doc = s.groupDiscovery(defs, parts[1])
	case parts[0] == "api" && len(parts) == 2:
		if l := apidiscovery.Resources(defs, schema.GroupVersion{Version: parts[1]}); l != nil {
			doc = l
		}
	case parts[0] == "apis" && len(parts) == 3:
		if l := apidiscovery.Resources(defs, schema.GroupVersion{Group: parts[1], Version: parts[2]}); l != nil {
			doc = l
		}
	case parts[0] == "version" && len(parts) == 1 && req.Method != http.MethodGet:
		s.writeError(w, req, apistatus.MethodNotAllowed())
		return
	default:
		s.Paths.ServeHTTP(w, req)
		return
	}
	if doc == nil {
		s.writeError(w, req, apistatus.NoSuchResource())
		return
	}
	if req.Method != http.MethodGet {
		s.writeError(w, req, apistatus.MethodNotAllowed())
		return
	}
	f, err := negotiate.Format(req, false, false, false)
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	var buf bytes.Buffer
	e := &encode.Encoder{Codec: s.Server.State.Codec, Format: f}
	if err := e.Raw(&buf, doc); err != nil {
		s.writeError(w, req, err)
		return
	}
	w.Header().Add("Vary", "Accept")
	responsewriter.Send(w, req, http.StatusOK, f.Media.ContentType(), buf.Bytes())
}

// DashboardPath is the path of the dashboard.
const DashboardPath = "/dashboard"

// isDashboard says that a path is one of the dashboard's static files.
func isDashboard(path string) bool {
	return path == DashboardPath || strings.HasPrefix(path, DashboardPath+"/")
}

const aggregatedDiscoveryType = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// wantsAggregated says that the first choice of the client is the aggregated discovery document.
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

// writeAggregatedDiscovery sends the aggregated discovery document with an ETag, so that clients need not read it
// again.
func (s *Handler) writeAggregatedDiscovery(w *responsewriter.Writer, req *http.Request, l *apidiscoveryv2.APIGroupDiscoveryList) {
	body, err := json.Marshal(l)
	if err != nil {
		s.writeError(w, req, err)
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
		if err := s.Server.State.Codec.Append(&buf, codec.Proto, l); err == nil {
			media, body = codec.Proto, buf.Bytes()
		}
	}
	if !w.Memory.Grow(int64(len(body))) {
		h.Del("Etag")
		h.Set("Cache-Control", "no-cache, private")
		s.writeError(w, req, apistatus.TooManyRequests())
		return
	}
	responsewriter.Send(w, req, http.StatusOK, media.ContentType()+";"+aggregatedDiscoveryType, body)
}
