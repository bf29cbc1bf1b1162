package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// MaxBodies bounds the request and response bodies of one event together. Beyond it both are left out, and the event
// says so.
const MaxBodies = 1 << 20

const (
	maxAgent  = 1024
	truncated = "audit.k8s.io/truncated"
)

// Trail is the record of one request as it grows. It belongs to the goroutine that serves the request. All methods are good
// to call on nil, which is the trail of a request that leaves none.
type Trail struct {
	log     *Log
	verdict verdict
	event   auditv1.Event
	long    bool
	secret  bool // what was sent holds what only some may read
	started bool
	refused bool
	untold  bool
}

func newTrail(l *Log, v verdict, r *Request) *Trail {
	t := &Trail{log: l, verdict: v, long: r.Long, secret: r.Confidential}
	e := &t.event
	e.Kind, e.APIVersion = "Event", auditv1.SchemeGroupVersion.String()
	e.Level, e.AuditID, e.Verb = v.level, types.UID(r.ID), r.Verb
	e.RequestURI, e.UserAgent = r.URI, r.Agent
	e.RequestReceivedTimestamp = metav1.NewMicroTime(r.Start)
	if h := r.HTTP; h != nil {
		e.RequestURI, e.UserAgent = withoutTokens(h.URL), h.UserAgent()
		for _, ip := range utilnet.SourceIPs(h) {
			e.SourceIPs = append(e.SourceIPs, ip.String())
		}
	}
	if len(e.UserAgent) > maxAgent {
		e.UserAgent = e.UserAgent[:maxAgent] + "...TRUNCATED"
	}
	if r.User != nil {
		e.User = userInfo(r.User)
	}
	if r.IsResource {
		e.ObjectRef = &auditv1.ObjectReference{
			Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, APIGroup: r.Group, APIVersion: r.Version, Subresource: r.Subresource,
		}
	}
	return t
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}

// Impersonated records as whom the client acts.
func (t *Trail) Impersonated(u user.Info) {
	if t != nil {
		t.event.ImpersonatedUser = new(userInfo(u))
	}
}

// Note adds an annotation to the event.
func (t *Trail) Note(key, value string) {
	if t == nil {
		return
	}
	if t.event.Annotations == nil {
		t.event.Annotations = map[string]string{}
	}
	t.event.Annotations[key] = value
}

// NoteBody adds an annotation that may repeat a part of the body. It is left out where the policy wants no bodies, and where what was sent
// is confidential.
func (t *Trail) NoteBody(key, value string) {
	if t == nil || t.secret || t.verdict.level == auditv1.LevelNone || t.verdict.level == auditv1.LevelMetadata {
		return
	}
	if len(value) > MaxBodies {
		t.TooLarge()
		return
	}
	t.Note(key, value)
}

// Decided records what hop 3 said. A failure to decide has no decision.
func (t *Trail) Decided(allowed bool, reason string, err error) {
	switch {
	case t == nil:
		return
	case allowed:
		t.Note("authorization.k8s.io/decision", "allow")
	case err != nil:
		reason = "internal error"
	default:
		t.Note("authorization.k8s.io/decision", "forbid")
	}
	t.Note("authorization.k8s.io/reason", reason)
}

// Object records which object was sent, as far as the path does not say.
func (t *Trail) Object(o metav1.Object) {
	if t == nil || t.event.ObjectRef == nil {
		return
	}
	ref := t.event.ObjectRef
	if ref.Namespace == "" {
		ref.Namespace = o.GetNamespace()
	}
	if ref.Name == "" {
		ref.Name = o.GetName()
	}
	if ref.UID == "" {
		ref.UID = o.GetUID()
	}
	if ref.ResourceVersion == "" {
		ref.ResourceVersion = o.GetResourceVersion()
	}
}

// WantsRequest says that the policy wants the body of the request.
func (t *Trail) WantsRequest() bool { return t != nil && t.verdict.atLeast(auditv1.LevelRequest) }

// WantsResponse says that the policy wants the body of the answer.
func (t *Trail) WantsResponse() bool {
	return t != nil && t.verdict.atLeast(auditv1.LevelRequestResponse)
}

// Request records the body of the request, as JSON. The bytes are kept.
func (t *Trail) Request(body []byte) {
	if t.WantsRequest() {
		t.event.RequestObject = t.body(body)
	}
}

// Response records the body of the answer, as JSON. The bytes are kept.
func (t *Trail) Response(body []byte) {
	if t.WantsResponse() {
		t.event.ResponseObject = t.body(body)
	}
}

// TooLarge records that a body was not even encoded for the log.
func (t *Trail) TooLarge() { t.Note(truncated, "true") }

func (t *Trail) body(b []byte) *runtime.Unknown {
	if len(b) > MaxBodies {
		t.TooLarge()
		return nil
	}
	if !json.Valid(b) {
		return nil
	}
	if t.verdict.omitManaged {
		b = withoutManaged(b)
	}
	return &runtime.Unknown{Raw: bytes.TrimSpace(b), ContentType: runtime.ContentTypeJSON}
}

// withoutManaged takes managedFields out of an object, and of the items or rows of a list.
func withoutManaged(b []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var doc map[string]any
	if dec.Decode(&doc) != nil {
		return b // a JSON patch is a list
	}
	dropManaged(doc)
	for _, key := range []string{"items", "rows"} {
		items, _ := doc[key].([]any)
		for _, it := range items {
			m, _ := it.(map[string]any)
			if inner, ok := m["object"].(map[string]any); ok && key == "rows" {
				m = inner
			}
			dropManaged(m)
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return b
	}
	return out
}

func dropManaged(doc map[string]any) {
	if m, ok := doc["metadata"].(map[string]any); ok {
		delete(m, "managedFields")
	}
}

// Status records an answer that is a Status.
func (t *Trail) Status(st *metav1.Status) {
	if t == nil {
		return
	}
	t.event.ResponseStatus = &metav1.Status{Status: st.Status, Message: st.Message, Reason: st.Reason, Details: st.Details, Code: st.Code}
	if t.secret && quotesBody(st.Reason) {
		t.event.ResponseStatus.Message, t.event.ResponseStatus.Details = "", nil
	}
}

// Started records the code of the answer; for an answer that lasts it is an event.
func (t *Trail) Started(code int) {
	if t == nil || t.started {
		return
	}
	t.started = true
	if t.event.ResponseStatus == nil {
		t.event.ResponseStatus = &metav1.Status{}
	}
	t.event.ResponseStatus.Code = int32(code)
	if t.long {
		t.emit(auditv1.StageResponseStarted)
	}
}

// Done ends the trail. The code is zero when nothing was answered.
func (t *Trail) Done(code int) {
	if t == nil {
		return
	}
	if code == 0 {
		if t.event.ResponseStatus == nil {
			t.event.ResponseStatus = &metav1.Status{Status: metav1.StatusSuccess, Message: "Connection closed early"}
		}
		code = http.StatusOK
	}
	t.Started(code)
	if !t.refused {
		t.emit(auditv1.StageResponseComplete)
	}
}

// Panicked ends the trail of a request that failed in a way it should not.
func (t *Trail) Panicked(p any) {
	if t == nil {
		return
	}
	t.event.ResponseStatus = &metav1.Status{
		Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("APIServer panic'd: %v", p),
	}
	t.emit(auditv1.StagePanic)
}

// Untold says that the request must be refused, because nobody could be told of its arrival who has to be.
func (t *Trail) Untold() bool { return t != nil && t.untold }

// emit writes down a stage, and says whether the request may go on.
func (t *Trail) emit(stage auditv1.Stage) bool {
	if t == nil || slices.Contains(t.verdict.omit, stage) {
		return true
	}
	e := &t.event
	e.Stage, e.StageTimestamp = stage, metav1.NewMicroTime(time.Now())
	if stage == auditv1.StageRequestReceived {
		e.StageTimestamp = e.RequestReceivedTimestamp
	}
	if size(e.RequestObject)+size(e.ResponseObject) > MaxBodies {
		e.RequestObject, e.ResponseObject = nil, nil
		t.TooLarge()
	}
	line, err := json.Marshal(e)
	if err != nil {
		t.log.lost(1, true, err)
		return true
	}
	return t.log.put(append(line, '\n'))
}

func size(u *runtime.Unknown) int {
	if u == nil {
		return 0
	}
	return len(u.Raw)
}
