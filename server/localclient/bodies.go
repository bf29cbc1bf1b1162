package localclient

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/server"
	"proa.dev/server/encode"
)

// beginClock starts the clock of a write. It returns the object that the caller hands over, encoded before the pipeline changes it; nil
// for a request whose bodies are not kept.
func (l *localClient) beginClock(r *server.Request) *hop.Wire {
	if l.server.Recorder == nil || !hop.IsWriteVerb(r.Verb) {
		return nil
	}
	now := time.Now()
	r.Clock.Detailed = l.server.Recorder.Detail(now, "")
	var w *hop.Wire
	if encode.KeepsBodies(l.server.Recorder, r) && r.Verb != "deletecollection" && !r.Def.Transient {
		w = &hop.Wire{InProcess: true}
		if obj, gvk := handedOver(r); obj != nil {
			b := encode.BodyOf(obj, gvk)
			w.Request, w.RequestType, w.RequestSize, w.RequestJSON = b.Data, b.Type, b.Size, b.JSON
		}
		now = time.Now() // encoding is no part of the request
	}
	r.Clock.Begin(now)
	return w
}

// handedOver returns the object or the options of a request, and their kind.
func handedOver(r *server.Request) (runtime.Object, schema.GroupVersionKind) {
	switch {
	case r.Object != nil && r.Sub != nil && r.Sub.Body != nil:
		return r.Object, r.Sub.Body.GroupVersionKind
	case r.Object != nil:
		return r.Object, r.Def.GroupVersionKind
	case r.Options.Delete != nil:
		return r.Options.Delete, schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	}
	return nil, schema.GroupVersionKind{}
}

// keepAnswer adds the object that the caller is answered, and keeps both beside the record of the write, if there is one.
func (l *localClient) keepAnswer(r *server.Request, res *server.Response, w *hop.Wire) {
	if w == nil || res == nil || res.Object == nil || r.RecordedUID == "" {
		return
	}
	b := encode.BodyOf(res.Object, r.Def.GroupVersionKind)
	w.Response, w.ResponseType, w.ResponseSize, w.ResponseJSON = b.Data, b.Type, b.Size, b.JSON
	l.server.Recorder.SetWire(r.RecordedUID, r.RecordedRev, w)
}
