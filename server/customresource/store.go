package customresource

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "sigs.k8s.io/json"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// load decodes a stored object and converts it to this version.
func (v *version) load(value []byte) (kind.Object, error) {
	content := map[string]any{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(value, &content); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	want, found := v.resource.kindOf(v.spec.Name), u.GroupVersionKind()
	if found.GroupKind() != want.GroupKind() {
		return nil, fmt.Errorf("stored as %s, want %s", found, want)
	}
	if stored := v.resource.versions[found.Version]; stored != nil {
		stored.prune(u, false)
		stored.setDefaults(u)
	}
	if found == want {
		return u, nil
	}
	converted, err := v.resource.convert(v.resource.ctx, u, want.GroupVersion())
	if err != nil {
		return nil, err
	}
	return converted.(*unstructured.Unstructured), nil
}

// store encodes an object of this version in the storage version. The object is not changed.
func (v *version) store(o kind.Object) ([]byte, error) {
	u := o.(*unstructured.Unstructured)
	if stored := v.resource.Stored; stored != nil && stored != v.def {
		converted, err := v.resource.convert(v.resource.ctx, u, stored.GroupVersion())
		if err != nil {
			return nil, err
		}
		u = converted.(*unstructured.Unstructured)
	}
	text, err := codec.AppendUntyped(nil, u.Object)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// convert returns an object in another version. Where the definition names no webhook, versions differ by name only.
func (r *Resource) convert(ctx context.Context, o kind.Object, to schema.GroupVersion) (kind.Object, error) {
	u := o.(*unstructured.Unstructured)
	if u.GroupVersionKind().GroupVersion() == to {
		return u, nil
	}
	if r.versions[to.Version] == nil || to.Group != r.Definition.Spec.Group {
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to)
	}
	hook := r.webhook()
	if hook == nil {
		out := u.DeepCopy()
		out.SetGroupVersionKind(to.WithKind(u.GetKind()))
		r.versions[to.Version].prune(out, false)
		return out, nil
	}
	out, err := r.convertByWebhook(ctx, hook, u, to)
	if err != nil {
		return nil, err
	}
	r.versions[to.Version].prune(out, false)
	return out, nil
}

// convertNow is convert for callers without a context.
func (r *Resource) convertNow(u *unstructured.Unstructured, to schema.GroupVersion) (kind.Object, error) {
	return r.convert(r.ctx, u, to)
}
