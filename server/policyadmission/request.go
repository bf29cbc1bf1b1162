package policyadmission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/objectversion"
)

// request is one write as policies see it. It belongs to one call of a plugin; what several policies need is made once,
// by the first.
type request struct {
	objectversion.Write
	authorizer authorizer.UnconditionalAuthorizer
	// caching is the authorizer with a cache for this request; nil before the first use.
	caching    authorizer.UnconditionalAuthorizer
	attributes admission.Attributes // nil before the first policy that matches
	versions   map[schema.GroupVersionKind]*admission.VersionedAttributes
	namespace  *corev1.Namespace // nil before the first use, and for a write that is in none
}

// target is the version in which a policy has matched a write.
type target struct {
	resource schema.GroupVersionResource
	def      *kind.Def
	kind     schema.GroupVersionKind // of the object; for some subresources it is not the one of the resource
}

func newRequest(a *kind.Admission, asks authorizer.UnconditionalAuthorizer) *request {
	return &request{Write: objectversion.Of(a), authorizer: asks}
}

// cachedAuthorizer returns the authorizer for expressions.
func (r *request) cachedAuthorizer() authorizer.UnconditionalAuthorizer {
	if r.caching == nil {
		r.caching = admissionauthorizer.NewCachingAuthorizer(r.authorizer)
	}
	return r.caching
}

// targetOf returns the target for a served version of the resource.
func (r *request) targetOf(def *kind.Def) target {
	return target{resource: objectversion.ResourceOf(def), def: def, kind: admissionmatch.Kind(def, r.Sub)}
}

// namespaceObject returns the namespace that the write is in; nil for cluster-scoped objects, and for Namespaces.
func (r *request) namespaceObject(ctx context.Context) (*corev1.Namespace, error) {
	if r.namespace != nil || r.Namespace == "" || r.Def.Resource() == gr.Namespaces {
		return r.namespace, nil
	}
	ns, err := r.NamespaceObject(ctx)
	r.namespace = ns
	return ns, err
}

// inVersion returns the object and the old object in the version of a target.
func (r *request) inVersion(ctx context.Context, t target) (*admission.VersionedAttributes, error) {
	if v := r.versions[t.kind]; v != nil {
		return v, nil
	}
	obj, old, err := r.Objects(ctx, t.def)
	if err != nil {
		return nil, fmt.Errorf("failed to convert object version: %w", err)
	}
	if r.attributes == nil {
		r.attributes = r.Attributes()
		r.versions = map[schema.GroupVersionKind]*admission.VersionedAttributes{}
	}
	v := &admission.VersionedAttributes{Attributes: r.attributes, VersionedKind: t.kind}
	v.VersionedObject.Set(obj)
	v.VersionedOldObject.Set(old)
	r.versions[t.kind] = v
	return v, nil
}
