package server

import (
	"context"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server/audit"
	"proa.dev/server/collection"
	"proa.dev/server/fairqueue"
	"proa.dev/server/memorybudget"
)

// Request is one request to the pipeline, from HTTP or from a caller in the same process.
type Request struct {
	Verb            string // get list watch create update patch delete deletecollection
	Def             *kind.Def
	Sub             *kind.SubDef
	Namespace, Name string

	User  user.Info
	Agent string // the client's name for itself, the default field manager
	// Remote is the address of the peer of the connection; the zero value for a caller in the same process.
	Remote netip.Addr

	// Body is the body of an HTTP request, in Media; a caller in the same process sets Object instead, which is private
	// to the request.
	Body   []byte
	Media  codec.Media
	Object kind.Object

	// Patch is the type of a patch.
	Patch types.PatchType

	Options Options
	Clock   hop.Clock

	// Flow is the flow in which the request waits for its seats; nil when Serve is to classify it.
	Flow *fairqueue.Flow
	// Work is the processor time that the request takes; nil when that is not limited.
	Work *fairqueue.Work
	// KeepSeat is given the function that gives the seat back, for a caller that keeps the seat until the answer is
	// sent. When it is nil, the seat is given back at the end of Serve.
	KeepSeat func(leave func())
	// AnswerMemory counts the memory that the answer holds; nil when nobody counts it.
	AnswerMemory *memorybudget.Lease
	// ProtobufOnly says that the answer is encoded as protobuf and not audited, so that a written object need not be
	// read again.
	ProtobufOnly bool
	// Warnings are the texts for the Warning headers of the answer.
	Warnings []string
	// Audit is the audit record of the request; nil for none.
	Audit *audit.Record

	// RecordedUID and RecordedRev name the record of the write of the request, or of the action that it asked for, such as a binding; zero
	// if there is none.
	RecordedUID types.UID
	RecordedRev int64
	actionOf    *Request // the request whose action this write is; nil for none

	// unchanged says that the write would have stored what is stored already, and so nothing was written.
	unchanged bool
	// admitted says that the request is a part of another one, which has passed admission already.
	admitted bool
	// transactionAdditions are what admission plugins add to the transaction of the present attempt, such as the use of
	// a quota.
	transactionAdditions []func(context.Context, kind.Replacer) error
}

// addToTransaction lets an admission plugin add to the transaction of the write; it is the Join of kind.Admission.
func (r *Request) addToTransaction(add func(context.Context, kind.Replacer) error) {
	if !r.Options.DryRun {
		r.transactionAdditions = append(r.transactionAdditions, add)
	}
}

// IsJSONOnly says that the object of the request has no protobuf form and no Go type, as custom objects have none.
func (r *Request) IsJSONOnly() bool { return r.Def.JSONOnly && (r.Sub == nil || r.Sub.Body == nil) }

// Options are the query parameters of a request, checked.
type Options struct {
	DryRun          bool
	Manager         string
	Validation      string // Strict, Warn or Ignore
	FieldValidation string // Validation as the client gave it, empty when it gave none
	Force           bool
	Delete          *metav1.DeleteOptions
	List            collection.Options
}

// asObject returns the options of an operation as the API object that admission plugins see.
func (o *Options) asObject(operation string) runtime.Object {
	var dry []string
	if o.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	typed := func(name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: name} }
	switch operation {
	case "create":
		return &metav1.CreateOptions{TypeMeta: typed("CreateOptions"), DryRun: dry, FieldManager: o.Manager,
			FieldValidation: o.FieldValidation}
	case "update":
		return &metav1.UpdateOptions{TypeMeta: typed("UpdateOptions"), DryRun: dry, FieldManager: o.Manager,
			FieldValidation: o.FieldValidation}
	case "delete":
		out := &metav1.DeleteOptions{}
		if o.Delete != nil {
			out = o.Delete.DeepCopy()
		}
		out.TypeMeta = typed("DeleteOptions")
		return out
	}
	return nil
}

// Warn adds a text to the Warning headers of the answer.
func (r *Request) Warn(texts ...string) { r.Warnings = append(r.Warnings, texts...) }

// SetCause records the write that led to this one, from the write set of the caller.
func (r *Request) SetCause(ctx context.Context) {
	if t := client.WriteSetOf(ctx); t != nil {
		r.Clock.Record.CauseUID, r.Clock.Record.CauseRev = t.CauseUID, t.CauseRev
	}
}
