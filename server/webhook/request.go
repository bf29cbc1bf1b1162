package webhook

import (
	"context"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/objectversion"
)

// request is one write as webhooks see it. It belongs to one call of a plugin; what several webhooks need is made once,
// by the first.
type request struct {
	objectversion.Write
	authorizer authorizer.UnconditionalAuthorizer
	versions   map[schema.GroupVersionKind]*versioned
}

// versioned is a write in the version that a webhook asks for. It is read-only.
type versioned struct {
	def         *kind.Def
	kind        schema.GroupVersionKind // of the object; for some subresources it is not the one of the resource
	object, old runtime.Object          // nil if there is none
	objectJSON  []byte
	oldJSON     []byte
}

func newRequest(a *kind.Admission, asks authorizer.UnconditionalAuthorizer) *request {
	r := &request{Write: objectversion.Of(a), versions: map[schema.GroupVersionKind]*versioned{}}
	if asks != nil {
		r.authorizer = admissionauthorizer.NewCachingAuthorizer(asks)
	}
	return r
}

// newObject returns an empty object of a version, or empty options of a connection.
func (r *request) newObject(v *versioned) runtime.Object {
	if r.Connect != nil {
		return reflect.New(reflect.TypeOf(r.Connect).Elem()).Interface().(runtime.Object)
	}
	return r.NewObject(v.def)
}

// inVersion returns the write in a version of its resource.
func (r *request) inVersion(ctx context.Context, def *kind.Def) (*versioned, error) {
	key := def.GroupVersionKind
	if v := r.versions[key]; v != nil {
		return v, nil
	}
	v := &versioned{def: def, kind: admissionmatch.Kind(def, r.Sub)}
	var err error
	if v.object, v.old, err = r.Objects(ctx, def); err != nil {
		return nil, err
	}
	if v.objectJSON, err = encode(v.object); err != nil {
		return nil, err
	}
	if v.oldJSON, err = encode(v.old); err != nil {
		return nil, err
	}
	r.versions[key] = v
	return v, nil
}

func encode(o runtime.Object) ([]byte, error) {
	if o == nil {
		return nil, nil
	}
	return json.Marshal(o)
}

// store replaces the object of the write, or the options of the connection.
func (r *request) store(ctx context.Context, next runtime.Object, v *versioned) error {
	if r.Connect != nil {
		r.Connect = next
	} else if err := r.Store(ctx, next.(kind.Object), v.def); err != nil {
		return err
	}
	clear(r.versions)
	return nil
}

// complete sets defaults after a patch. Options have none.
func (r *request) complete(next runtime.Object, v *versioned) error {
	if r.Connect != nil {
		return nil
	}
	return r.Complete(next.(kind.Object), v.def)
}

// attributes returns the write as match conditions see it.
func (r *request) attributes(v *versioned) *admission.VersionedAttributes {
	out := &admission.VersionedAttributes{Attributes: r.Attributes(), VersionedKind: v.kind}
	out.VersionedObject.Set(v.object)
	out.VersionedOldObject.Set(v.old)
	return out
}
