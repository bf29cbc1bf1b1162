package server

import (
	"context"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/server/audit"
	"proa.dev/server/budget"
	"proa.dev/server/fair"
)

// Request is one question to the front door, from HTTP or from a caller in the same process.
type Request struct {
	Verb            string // get list watch create update patch delete deletecollection
	Def             *kind.Def
	Sub             *kind.SubDef
	Namespace, Name string

	User  user.Info
	Agent string // the client's name for itself, the default field manager
	// Remote is the address of the peer of the connection; the zero value for a caller in the same process.
	Remote netip.Addr

	// Body is what HTTP brought; Object is what a caller in the same process hands over instead. Object
	// is private to the request.
	Body   []byte
	Media  codec.Media
	Object kind.Object

	// Patch is the type of a patch.
	Patch types.PatchType

	Options Options
	Clock   hop.Clock

	flow        *fair.Flow      // where it belongs; nil before that is known
	work        *fair.Work      // its computing; nil when nobody shares that out
	seat        *seat           // where to leave its seat when it is to be kept after Serve; nil for nowhere
	answer      *budget.Lease   // what the answer holds; nil when nobody counts that
	leases      [2]budget.Lease // what the body holds: as it was read, and decoded
	noWatchList bool            // it may not ask for the present state at the beginning of a watch
	compact     bool            // the answer goes out as protobuf and nowhere else
	warnings    []string
	trail       *audit.Trail // nil for none
	// admitted says that it is a part of another request, which admission has seen already.
	admitted bool
	// joined is what admission plugins add to the transaction of this attempt.
	joined []func(context.Context, kind.Replacer) error
}

// join is Admission.Join.
func (r *Request) join(add func(context.Context, kind.Replacer) error) {
	if !r.Options.DryRun {
		r.joined = append(r.joined, add)
	}
}

// hasNoProto says that what the request is about has no protobuf form and no Go type, as custom objects.
func (r *Request) hasNoProto() bool { return r.Def.JSONOnly && (r.Sub == nil || r.Sub.Body == nil) }

// Options are the query parameters of a request, checked.
type Options struct {
	DryRun     bool
	Manager    string
	Validation string // Strict, Warn or Ignore
	asked      string // Validation as the client gave it, which may be nothing
	Force      bool
	Delete     *metav1.DeleteOptions
	List       ListOptions
}

// of returns the options of an operation as clients know them.
func (o *Options) of(operation string) runtime.Object {
	var dry []string
	if o.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	typed := func(name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: name} }
	switch operation {
	case "create":
		return &metav1.CreateOptions{TypeMeta: typed("CreateOptions"), DryRun: dry, FieldManager: o.Manager, FieldValidation: o.asked}
	case "update":
		return &metav1.UpdateOptions{TypeMeta: typed("UpdateOptions"), DryRun: dry, FieldManager: o.Manager, FieldValidation: o.asked}
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

// ListOptions select what list, watch and deletecollection see.
type ListOptions struct {
	Labels          labels.Selector
	Fields          fields.Selector
	Limit           int64
	Continue        string
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
	TimeoutSeconds  int64
	Bookmarks       bool
	Initial         *bool
}

// Warn adds a text to the Warning headers of the answer.
func (r *Request) Warn(texts ...string) { r.warnings = append(r.warnings, texts...) }

// parse reads the query of a request.
func (r *Request) parse(q url.Values) error {
	o := &r.Options
	if s := q.Get("timeoutSeconds"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return badRequest("strconv.ParseInt: parsing %q: invalid syntax", s)
		}
		o.List.TimeoutSeconds = n
	}
	switch r.Verb {
	case "list", "watch", "deletecollection":
		if err := r.parseList(q); err != nil {
			return err
		}
	}
	dry := q["dryRun"]
	o.DryRun = len(dry) > 0
	o.Manager, o.Validation = q.Get("fieldManager"), q.Get("fieldValidation")
	var errs field.ErrorList
	kindOf := ""
	switch r.Verb {
	case "create":
		kindOf = "CreateOptions"
		errs = metav1validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: dry, FieldManager: o.Manager, FieldValidation: o.Validation})
	case "update":
		kindOf = "UpdateOptions"
		errs = metav1validation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: dry, FieldManager: o.Manager, FieldValidation: o.Validation})
	case "patch":
		kindOf = "PatchOptions"
		opts := &metav1.PatchOptions{DryRun: dry, FieldManager: o.Manager, FieldValidation: o.Validation}
		if s := q.Get("force"); s != "" {
			b := s != "0" && !strings.EqualFold(s, "false")
			opts.Force, o.Force = &b, b
		}
		errs = metav1validation.ValidatePatchOptions(opts, r.Patch)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kindOf}, "", errs)
	}
	if o.asked = o.Validation; o.asked == "" {
		o.Validation = metav1.FieldValidationWarn
	}
	return nil
}

func (r *Request) parseList(q url.Values) error {
	l := &r.Options.List
	var err error
	if s := q.Get("labelSelector"); s != "" {
		if l.Labels, err = labels.Parse(s); err != nil {
			return badRequest("%v", err)
		}
	}
	if s := q.Get("fieldSelector"); s != "" {
		if l.Fields, err = fields.ParseSelector(s); err != nil {
			return badRequest("%v", err)
		}
		if l.Fields, err = r.checkFields(l.Fields); err != nil {
			return err
		}
	}
	if err := l.of(r); err != nil {
		return err
	}
	if s := q.Get("limit"); s != "" {
		if l.Limit, err = strconv.ParseInt(s, 10, 64); err != nil {
			return badRequest("strconv.ParseInt: parsing %q: invalid syntax", s)
		}
	}
	l.Continue, l.ResourceVersion = q.Get("continue"), q.Get("resourceVersion")
	l.Match = metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	l.Bookmarks = truth(q, "allowWatchBookmarks")
	if q.Has("sendInitialEvents") {
		b := truth(q, "sendInitialEvents")
		l.Initial = &b
	}
	if r.Verb == "deletecollection" {
		return nil
	}
	in := &internalversion.ListOptions{
		Watch: r.Verb == "watch", ResourceVersion: l.ResourceVersion, ResourceVersionMatch: l.Match, Limit: l.Limit,
		Continue: l.Continue, AllowWatchBookmarks: l.Bookmarks, SendInitialEvents: l.Initial,
	}
	internalversion.SetListOptionsDefaults(in, !r.noWatchList)
	if errs := listvalidation.ValidateListOptions(in, !r.noWatchList); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

// of selects the one object that the path of a watch names.
func (l *ListOptions) of(r *Request) error {
	switch {
	case r.Name == "":
	case l.Fields == nil || l.Fields.Empty():
		l.Fields = fields.OneTermEqualSelector("metadata.name", r.Name)
	case l.exact("metadata.name") != r.Name:
		return badRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

func truth(q url.Values, name string) bool {
	if !q.Has(name) {
		return false
	}
	s := q.Get(name)
	return s != "0" && !strings.EqualFold(s, "false")
}

// checkFields refuses fields that cannot be selected by.
func (r *Request) checkFields(sel fields.Selector) (fields.Selector, error) {
	return sel.Transform(func(label, value string) (string, string, error) {
		if _, ok := r.Def.Fields[label]; ok {
			return label, value, nil
		}
		if r.Def.FieldError != "" {
			return "", "", badRequest(r.Def.FieldError, label)
		}
		known := `"metadata.name", "metadata.namespace"`
		return "", "", badRequest("%q is not a known field selector: only %s", label, known)
	})
}

// keep is the selection of a list or watch as a test of one object; nil when all objects pass.
func (l *ListOptions) keep(def *kind.Def) func(kind.Object) bool {
	byLabel, byField := l.Labels, l.Fields
	if byLabel != nil && byLabel.Empty() {
		byLabel = nil
	}
	var wanted fields.Requirements
	if byField != nil {
		wanted = byField.Requirements()
	}
	if byLabel == nil && len(wanted) == 0 {
		return nil
	}
	return func(o kind.Object) bool {
		for _, w := range wanted {
			if (def.Fields[w.Field](o) == w.Value) == (w.Operator == "!=") {
				return false
			}
		}
		return byLabel == nil || byLabel.Matches(labels.Set(o.GetLabels()))
	}
}

// exactName is the name that a field selector pins, if any.
func (l *ListOptions) exact(label string) string {
	if l.Fields == nil {
		return ""
	}
	v, _ := l.Fields.RequiresExactMatch(label)
	return v
}
