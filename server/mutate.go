package server

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionchain"
	"proa.dev/server/apistatus"
	"proa.dev/server/objectmeta"
	"proa.dev/server/schema"
)

// mutate is hop 4: the admission plugins that may change an object. obj is nil for a deletion, old for a new object.
func (s *Server) mutate(ctx context.Context, r *Request, obj, old kind.Object) error {
	r.transactionAdditions = nil // those of an earlier attempt
	if len(s.Mutate) == 0 || r.admitted {
		return nil
	}
	a := s.admission(r, obj, old)
	var created metav1.ObjectMeta
	if obj != nil {
		created.UID, created.CreationTimestamp = obj.GetUID(), obj.GetCreationTimestamp()
	}
	if err := admissionchain.Mutate(ctx, s.Mutate, a); err != nil {
		return err
	}
	if a.Patched && obj != nil {
		if text := schema.AfterAdmission(obj, a.OwnersBefore); text != "" {
			r.Warn(text)
		}
		objectmeta.DropDuplicateOwners(obj, r.Warn)
		return checkMutated(r, obj, old, created)
	}
	return nil
}

// checkMutated checks an object that webhooks or policies have changed: it must still have the name and namespace of
// the request. What only the server decides about an object is set back to what it was; created is that of a new
// object.
func checkMutated(r *Request, obj, old kind.Object, created metav1.ObjectMeta) error {
	if r.Sub != nil && r.Sub.Body != nil {
		return nil // the body of an action, or of a projection such as scale: it has no identity of its own
	}
	if err := matchNamespace(r, obj); err != nil {
		return err
	}
	if name := obj.GetName(); r.Name != "" && name != r.Name {
		return apistatus.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name)
	}
	if old != nil {
		objectmeta.KeepIdentity(obj, old)
		return nil
	}
	obj.SetUID(created.UID)
	obj.SetCreationTimestamp(created.CreationTimestamp)
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	return nil
}

// admission describes a write to admission plugins.
func (s *Server) admission(r *Request, obj, old kind.Object) *Admission {
	a := &Admission{
		Server: s.services(r), Verb: r.Verb, Def: r.Def.Storage(), Served: r.Def, Namespace: r.Namespace, Name: r.Name, User: r.User,
		Remote: r.Remote,
		Object: obj, Old: old, DryRun: r.Options.DryRun, Warn: r.Warn, AddAuditAnnotation: r.Audit.Annotate,
		AddAuditBodyAnnotation: r.Audit.AnnotateBody, AddToTransaction: r.addToTransaction,
		Kind: s.State.DefOfKind, Versions: s.State.VersionsOf, Clock: &r.Clock,
	}
	switch {
	case obj == nil:
		a.Verb = "delete"
	case old == nil:
		if a.Verb = "create"; a.Name == "" {
			a.Name = obj.GetName()
		}
	default:
		a.Verb = "update"
	}
	a.Options = r.Options.asObject(a.Verb)
	if r.Sub != nil {
		a.Sub = r.Sub.Name
	}
	return a
}
