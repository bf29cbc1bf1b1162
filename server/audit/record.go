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

// MaxBodies is the limit of the request and response bodies of one event together. Beyond it both are left out, and an
// annotation of the event says so.
const MaxBodies = 1 << 20

const (
	maxAgent  = 1024
	truncated = "audit.k8s.io/truncated"
)

// Record is the audit record of one request. It belongs to the goroutine that serves the request. All methods may be
// called on nil, which is the audit record of a request that the policy does not record.
type Record struct {
	log          *Log
	decision     policyDecision
	event        auditv1.Event
	long         bool
	confidential bool // the bodies hold confidential data
	started      bool
	refused      bool
	failed       bool
}

func newRecord(l *Log, v policyDecision, r *Request) *Record {
	t := &Record{log: l, decision: v, long: r.LongRunning, confidential: r.Confidential}
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
			Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, APIGroup: r.Group, APIVersion: r.Version,
			Subresource: r.Subresource,
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

// SetImpersonatedUser records the user as whom the client acts.
func (t *Record) SetImpersonatedUser(u user.Info) {
	if t != nil {
		t.event.ImpersonatedUser = new(userInfo(u))
	}
}

// Annotate adds an annotation to the event.
func (t *Record) Annotate(key, value string) {
	if t == nil {
		return
	}
	if t.event.Annotations == nil {
		t.event.Annotations = map[string]string{}
	}
	t.event.Annotations[key] = value
}

// AnnotateBody adds an annotation that may repeat a part of the body. It is left out where the policy wants no bodies, and
// where the body is confidential.
func (t *Record) AnnotateBody(key, value string) {
	if t == nil || t.confidential || t.decision.level == auditv1.LevelNone || t.decision.level == auditv1.LevelMetadata {
		return
	}
	if len(value) > MaxBodies {
		t.SetTruncated()
		return
	}
	t.Annotate(key, value)
}

// SetDecision records the decision of the authorizers. An error to decide is recorded without a decision.
func (t *Record) SetDecision(allowed bool, reason string, err error) {
	switch {
	case t == nil:
		return
	case allowed:
		t.Annotate("authorization.k8s.io/decision", "allow")
	case err != nil:
		reason = "internal error"
	default:
		t.Annotate("authorization.k8s.io/decision", "forbid")
	}
	t.Annotate("authorization.k8s.io/reason", reason)
}

// SetObject records the name of the object that was sent, as far as the URL does not contain it.
func (t *Record) SetObject(o metav1.Object) {
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

// WantsRequest reports whether the policy wants the body of the request.
func (t *Record) WantsRequest() bool { return t != nil && t.decision.atLeast(auditv1.LevelRequest) }

// WantsResponse reports whether the policy wants the body of the response.
func (t *Record) WantsResponse() bool {
	return t != nil && t.decision.atLeast(auditv1.LevelRequestResponse)
}

// SetRequestBody records the body of the request, as JSON. The bytes are kept.
func (t *Record) SetRequestBody(body []byte) {
	if t.WantsRequest() {
		t.event.RequestObject = t.body(body)
	}
}

// SetResponseBody records the body of the response, as JSON. The bytes are kept.
func (t *Record) SetResponseBody(body []byte) {
	if t.WantsResponse() {
		t.event.ResponseObject = t.body(body)
	}
}

// SetTruncated records that a body was left out because of its size.
func (t *Record) SetTruncated() { t.Annotate(truncated, "true") }

func (t *Record) body(b []byte) *runtime.Unknown {
	if len(b) > MaxBodies {
		t.SetTruncated()
		return nil
	}
	if !json.Valid(b) {
		return nil
	}
	if t.decision.omitManaged {
		b = withoutManaged(b)
	}
	return &runtime.Unknown{Raw: bytes.TrimSpace(b), ContentType: runtime.ContentTypeJSON}
}

// withoutManaged removes managedFields from an object, and from the items or rows of a list.
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

// SetStatus records a response that is a Status.
func (t *Record) SetStatus(st *metav1.Status) {
	if t == nil {
		return
	}
	t.event.ResponseStatus = &metav1.Status{Status: st.Status, Message: st.Message, Reason: st.Reason, Details: st.Details, Code: st.Code}
	if t.confidential && quotesBody(st.Reason) {
		t.event.ResponseStatus.Message, t.event.ResponseStatus.Details = "", nil
	}
}

// ResponseStarted records the status code of the response. The start of a long response is an event.
func (t *Record) ResponseStarted(code int) {
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

// ResponseComplete ends the audit record. The code is zero when there was no response.
func (t *Record) ResponseComplete(code int) {
	if t == nil {
		return
	}
	if code == 0 {
		if t.event.ResponseStatus == nil {
			t.event.ResponseStatus = &metav1.Status{Status: metav1.StatusSuccess, Message: "Connection closed early"}
		}
		code = http.StatusOK
	}
	t.ResponseStarted(code)
	if !t.refused {
		t.emit(auditv1.StageResponseComplete)
	}
}

// Panicked ends the audit record of a request whose handler panicked.
func (t *Record) Panicked(p any) {
	if t == nil {
		return
	}
	t.event.ResponseStatus = &metav1.Status{
		Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("APIServer panic'd: %v", p),
	}
	t.emit(auditv1.StagePanic)
}

// Failed reports whether the request must be refused because its arrival could not be audited.
func (t *Record) Failed() bool { return t != nil && t.failed }

// emit writes the event of a stage, and reports whether the request may proceed.
func (t *Record) emit(stage auditv1.Stage) bool {
	if t == nil || slices.Contains(t.decision.omit, stage) {
		return true
	}
	e := &t.event
	e.Stage, e.StageTimestamp = stage, metav1.NewMicroTime(time.Now())
	if stage == auditv1.StageRequestReceived {
		e.StageTimestamp = e.RequestReceivedTimestamp
	}
	if size(e.RequestObject)+size(e.ResponseObject) > MaxBodies {
		e.RequestObject, e.ResponseObject = nil, nil
		t.SetTruncated()
	}
	line, err := json.Marshal(e)
	if err != nil {
		t.log.dropped(1, true, err)
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
