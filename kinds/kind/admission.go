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
)

// Plugin is one admission step of hop 4 or 6. Its name is the one it can be switched off by.
type Plugin struct {
	Name string
	// Off leaves the plugin out unless it is asked for.
	Off bool
	// Admit looks at a write; in hop 4 it may change Object.
	Admit func(ctx context.Context, a *Admission) error
}

// Admission is a write as an admission plugin sees it.
type Admission struct {
	Door Door
	Verb string // create, update, delete, connect
	// Def is the stored version of the resource, which Object and Old are in. Served is the version that the request names.
	Def, Served *Def
	// Versions lists every version in which a resource is served, the stored one among them.
	Versions func(schema.GroupResource) []*Def
	// Options are those of the request: CreateOptions, UpdateOptions or DeleteOptions, also of a patch, which creates or updates; nil
	// for connections.
	Options runtime.Object
	// Patched says that a webhook or a policy has changed Object, and OwnersBefore are the managedFields that it had before the first of
	// them: what they make of managedFields and ownerReferences is checked.
	Patched      bool
	OwnersBefore []metav1.ManagedFieldsEntry
	// Reinvocation is what plugins of hop 4 know of each other; nil in hop 6.
	Reinvocation *Reinvocation
	Sub          string
	Namespace    string
	Name         string
	User         user.Info
	// Remote is the address of the peer that sent the request over the network: the one of the TCP connection, never one of a
	// header. It is the zero value for a caller in the server's process.
	Remote netip.Addr
	Object Object // in the stored version; nil on delete
	Old    Object // nil on create
	// Connect are the options of a connection, a PodExecOptions for example; nil for everything else. Who changes them in hop 4 puts
	// others in their place.
	Connect runtime.Object
	DryRun  bool
	Final   bool // hop 6: Object, with its name, is as it will be stored
	Warn    func(texts ...string)
	// Note adds an annotation to the audit trail of the request.
	Note func(key, value string)
	// NoteBody is Note for what may repeat a part of the body: it adds nothing where the audit policy does not want bodies.
	NoteBody func(key, value string)
	// Kind finds the resource of a kind that an owner reference names; nil when there is none.
	Kind func(gvk schema.GroupVersionKind) *Def
	// Join lets a plugin add to the transaction of the write. What it hands over runs when the write is about to be stored,
	// and again when something it replaced was changed by somebody else; it does not run on a dry run. Writes of one
	// namespace that have joined something are stored one after the other.
	Join func(add func(ctx context.Context, tx Replacer) error)
}

// Reinvocation lets the plugins of hop 4 run a second time, because one of them, which asked for it, has run before another one changed
// the object.
type Reinvocation struct {
	// Again says that this is the second time.
	Again  bool
	wanted bool
	kept   map[string]any
}

// Want asks for a second time.
func (r *Reinvocation) Want() { r.wanted = true }

// Wanted reports whether a plugin has asked for a second time.
func (r *Reinvocation) Wanted() bool { return r.wanted }

// Keep stores what a plugin wants to know the second time, by its name.
func (r *Reinvocation) Keep(plugin string, value any) {
	if r.kept == nil {
		r.kept = map[string]any{}
	}
	r.kept[plugin] = value
}

// Kept returns what a plugin has stored; nil if it has not.
func (r *Reinvocation) Kept(plugin string) any { return r.kept[plugin] }

// Replacer is the transaction of a write as admission plugins see it.
type Replacer interface {
	Door
	// Replace stores a new version of another object in the same transaction. Its resourceVersion must be that of the object
	// as it was read from this Replacer.
	Replace(gr schema.GroupResource, obj Object)
}

// Patch puts another content in the place of Object, which must be of the same type. It is for webhooks and policies.
func (a *Admission) Patch(next Object) {
	if !a.Patched {
		a.Patched, a.OwnersBefore = true, a.Object.GetManagedFields()
	}
	if reflect.TypeOf(next) == reflect.TypeOf(a.Object) && next != a.Object {
		put(a.Object, next)
	}
}

// Creates says that the write makes a new object, not one through a subresource.
func (a *Admission) Creates() bool { return a.Verb == "create" && a.Sub == "" }

// Updates says that the write changes an object as a whole.
func (a *Admission) Updates() bool { return a.Verb == "update" && a.Sub == "" }

// Home is the namespace of the write.
func (a *Admission) Home(ctx context.Context) (*corev1.Namespace, error) {
	o, err := a.Door.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
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

// Asks asks hop 3 whether the user may do something else, too.
func (a *Admission) Asks(ctx context.Context, what authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: a.User.GetName(), UID: a.User.GetUID(), Groups: a.User.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &what,
	}
	for key, values := range a.User.GetExtra() {
		spec.Extra[key] = values
	}
	return a.Door.ReviewAccess(ctx, spec)
}

// Forbid refuses the write for a reason, in the form that clients know. A reason that is such a refusal already stays
// as it is.
func (a *Admission) Forbid(reason error) error {
	if apierrors.IsForbidden(reason) {
		return reason
	}
	return apierrors.NewForbidden(a.Def.Resource(), a.called(), reason)
}

// Forbidf is Forbid with a text.
func (a *Admission) Forbidf(format string, args ...any) error {
	return a.Forbid(fmt.Errorf(format, args...))
}

// called is the name of the object in a refusal. Of a generated name that is the part before the random end as long as the
// object may still be changed.
func (a *Admission) called() string {
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
