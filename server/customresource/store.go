package customresource

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "sigs.k8s.io/json"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// load decodes a stored object and converts it to this version.
func (v *version) load(value []byte) (kind.Object, error) {
	one := v.loadAll(v.resource.ctx, [][]byte{value})[0]
	return one.Object, one.Err
}

// loadAll decodes stored objects and converts them to this version.
func (v *version) loadAll(ctx context.Context, values [][]byte) []kind.Loaded {
	out, objects := make([]kind.Loaded, len(values)), make([]*unstructured.Unstructured, len(values))
	want, others := v.resource.kindOf(v.spec.Name), []int(nil) // others are the places of objects of other versions
	for i, value := range values {
		u, err := v.decode(value)
		out[i].Err = err
		if err != nil {
			continue
		}
		if objects[i], out[i].Object = u, u; u.GroupVersionKind() != want {
			others = append(others, i)
		}
	}
	if len(others) == 0 {
		return out
	}
	pending := make([]*unstructured.Unstructured, len(others))
	for j, i := range others {
		pending[j] = objects[i]
	}
	for j, l := range v.resource.convertAll(ctx, pending, want.GroupVersion()) {
		out[others[j]] = l
	}
	return out
}

// decode decodes a stored object, in the version in which it was stored.
func (v *version) decode(value []byte) (*unstructured.Unstructured, error) {
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
	return u, nil
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
	one := r.convertAll(ctx, []*unstructured.Unstructured{u}, to)[0]
	return one.Object, one.Err
}

// convertAll returns objects of other versions in a version.
func (r *Resource) convertAll(ctx context.Context, objects []*unstructured.Unstructured, to schema.GroupVersion) []kind.Loaded {
	out := make([]kind.Loaded, len(objects))
	version, hook := r.versions[to.Version], r.webhook()
	switch {
	case version == nil || to.Group != r.Definition.Spec.Group:
		for i := range out {
			out[i].Err = fmt.Errorf("request to convert CR to an invalid group/version: %s", to)
		}
		return out
	case hook == nil:
		for i, u := range objects {
			converted := u.DeepCopy()
			converted.SetGroupVersionKind(to.WithKind(u.GetKind()))
			out[i].Object = converted
		}
	default:
		r.convertByWebhook(ctx, &conversion{hook: hook, to: to, deadline: time.Now().Add(conversionTimeout)}, objects, out)
	}
	for i := range out {
		if out[i].Err == nil {
			version.prune(out[i].Object.(*unstructured.Unstructured), false)
		}
	}
	return out
}

// convertNow is convert for callers without a context.
func (r *Resource) convertNow(u *unstructured.Unstructured, to schema.GroupVersion) (kind.Object, error) {
	return r.convert(r.ctx, u, to)
}
