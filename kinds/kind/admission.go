package kind

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
)

// Plugin is one admission plugin of hop 4 or 6. Name is the name by which it can be disabled.
type Plugin struct {
	Name string
	// DisabledByDefault disables the plugin unless it is enabled by name.
	DisabledByDefault bool
	// Admit admits or refuses a write; in hop 4 it may change Object.
	Admit func(ctx context.Context, a *Admission) error
}

// Admission is a write as an admission plugin sees it.
type Admission struct {
	Server Server
	Verb   string // create, update, delete, connect
	// Def is the stored version of the resource, which Object and Old are in. Served is the version that the request names.
	Def, Served *Def
	// Versions returns every version in which a resource is served, the storage version included.
	Versions func(schema.GroupResource) []*Def
	// Options are the options of the request: CreateOptions, UpdateOptions or DeleteOptions, also of a patch, which
	// creates or updates; nil for connections.
	Options runtime.Object
	// Patched says that a webhook or a policy has changed Object, and OwnersBefore are the managedFields that it had
	// before the first of them: their changes to managedFields and ownerReferences are validated.
	Patched      bool
	OwnersBefore []metav1.ManagedFieldsEntry
	// Reinvocation tells the plugins of hop 4 about their second run; nil in hop 6.
	Reinvocation *Reinvocation
	Sub          string
	Namespace    string
	Name         string
	User         user.Info
	// Remote is the address of the peer of the TCP connection, never one from a header. It is the zero value for a
	// caller in the server's process.
	Remote netip.Addr
	Object Object // in the stored version; nil on delete
	Old    Object // nil on create
	// Connect are the options of a connection, a PodExecOptions for example; nil for everything else. A plugin of hop
	// 4 changes them by assigning others.
	Connect runtime.Object
	DryRun  bool
	Final   bool // hop 6: Object, with its name, is as it will be stored
	Warn    func(texts ...string)
	// Clock measures the hops of the write; nil when nobody records them. A plugin adds what it calls as steps.
	Clock *hop.Clock
	// AddAuditAnnotation adds an annotation to the audit record of the request.
	AddAuditAnnotation func(key, value string)
	// AddAuditBodyAnnotation is Note for annotations that may quote the body: it adds nothing where the audit policy omits bodies.
	AddAuditBodyAnnotation func(key, value string)
	// Kind returns the resource of a kind that an owner reference names; nil when there is none.
	Kind func(gvk schema.GroupVersionKind) *Def
	// AddToTransaction lets a plugin add to the transaction of the write. The function runs when the write is about to be stored,
	// and again if another writer has changed an object that it replaces; it does not run on a dry run. Writes of one
	// namespace that have joined something are stored one after the other.
	AddToTransaction func(add func(ctx context.Context, tx Replacer) error)
}

// Reinvocation lets the plugins of hop 4 run a second time, because one of them asked for it and another one changed
// the object after it ran.
type Reinvocation struct {
	// IsSecondRun says that this is the second run.
	IsSecondRun bool
	wanted      bool
	kept        map[string]any
}

// Request requests a second run.
func (r *Reinvocation) Request() { r.wanted = true }

// IsRequested reports whether a plugin has requested a second run.
func (r *Reinvocation) IsRequested() bool { return r.wanted }

// Store stores a value of a plugin for its second run.
func (r *Reinvocation) Store(plugin string, value any) {
	if r.kept == nil {
		r.kept = map[string]any{}
	}
	r.kept[plugin] = value
}

// Load returns the value that a plugin has stored; nil if it has not.
func (r *Reinvocation) Load(plugin string) any { return r.kept[plugin] }

// Replacer is the transaction of a write as admission plugins see it.
type Replacer interface {
	Server
	// Replace stores a new version of another object in the same transaction. Its resourceVersion must be that of the
	// object as it was read from this Replacer.
	Replace(gr schema.GroupResource, obj Object)
}

// Patch replaces the content of Object by that of next, which must be of the same type. Webhooks and policies use it.
func (a *Admission) Patch(next Object) {
	if !a.Patched {
		a.Patched, a.OwnersBefore = true, a.Object.GetManagedFields()
	}
	if reflect.TypeOf(next) == reflect.TypeOf(a.Object) && next != a.Object {
		assign(a.Object, next)
	}
}

// IsCreate reports whether the write creates an object, not through a subresource.
func (a *Admission) IsCreate() bool { return a.Verb == "create" && a.Sub == "" }

// IsUpdate reports whether the write updates an object, not through a subresource.
func (a *Admission) IsUpdate() bool { return a.Verb == "update" && a.Sub == "" }

// NamespaceObject returns the Namespace object of the write.
func (a *Admission) NamespaceObject(ctx context.Context) (*corev1.Namespace, error) {
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", o)
	}
	return ns, nil
}

// Authorize asks the authorizer whether the user may do something else, too.
func (a *Admission) Authorize(ctx context.Context, what authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	return a.Server.ReviewAccess(ctx, AccessReview(a.User, &what))
}

// AccessReview returns the spec of a review that asks whether a user may do something.
func AccessReview(u user.Info, what *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{}, ResourceAttributes: what,
	}
	for key, values := range u.GetExtra() {
		spec.Extra[key] = values
	}
	return spec
}

// Forbid returns a Forbidden error for the write. A reason that is a Forbidden error already is returned as it is.
func (a *Admission) Forbid(reason error) error {
	if apierrors.IsForbidden(reason) {
		return reason
	}
	return apierrors.NewForbidden(a.Def.Resource(), a.shownName(), reason)
}

// Forbidf is Forbid with a text.
func (a *Admission) Forbidf(format string, args ...any) error {
	return a.Forbid(fmt.Errorf(format, args...))
}

// shownName returns the name of the object for a Forbidden error. As long as the object may still change, a generated
// name is shown without its random suffix.
func (a *Admission) shownName() string {
	if a.Verb != "create" || a.Object == nil || a.Final {
		return a.Name
	}
	const random = 5
	base := a.Object.GetGenerateName()
	if n := len(a.Name) - random; base != "" && n > 0 && n <= len(base) && strings.HasPrefix(base, a.Name[:n]) {
		return base
	}
	return a.Name
}
