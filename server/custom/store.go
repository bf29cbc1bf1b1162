package custom

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "sigs.k8s.io/json"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
)

// load decodes a stored object, in whichever version it was stored, as one of this version.
func (v *version) load(value []byte) (kind.Object, error) {
	content := map[string]any{}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(value, &content); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	want, found := v.of.kindOf(v.spec.Name), u.GroupVersionKind()
	if found.GroupKind() != want.GroupKind() {
		return nil, fmt.Errorf("stored as %s, want %s", found, want)
	}
	if stored := v.of.versions[found.Version]; stored != nil {
		stored.prune(u, false)
		stored.setDefaults(u)
	}
	if found == want {
		return u, nil
	}
	converted, err := v.of.convert(v.of.ctx, u, want.GroupVersion())
	if err != nil {
		return nil, err
	}
	return converted.(*unstructured.Unstructured), nil
}

// store encodes an object of this version in the version that objects are stored in. The object is not changed.
func (v *version) store(o kind.Object) ([]byte, error) {
	u := o.(*unstructured.Unstructured)
	if stored := v.of.Stored; stored != nil && stored != v.def {
		converted, err := v.of.convert(v.of.ctx, u, stored.GroupVersion())
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
	out, err := r.ask(ctx, hook, u, to)
	if err != nil {
		return nil, err
	}
	r.versions[to.Version].prune(out, false)
	return out, nil
}

// convertNow is convert for those who have no context.
func (r *Resource) convertNow(u *unstructured.Unstructured, to schema.GroupVersion) (kind.Object, error) {
	return r.convert(r.ctx, u, to)
}
