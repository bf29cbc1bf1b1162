// Package customresource makes descriptors of custom resources from their definitions. A custom resource then takes the
// way of a built-in one: the pipeline does not know the difference.
//
// Objects are unstructured.Unstructured. Unlike a built-in kind, all of whose versions are handled in the hub version,
// a custom resource is validated, admitted and cached in the version of the request, and converted when it is stored
// in, or read from, another one. Schemas, CEL programs and types are made when they are first needed, so that a
// definition which nobody uses costs little more than its bytes.
package customresource

import (
	"context"
	"fmt"
	"slices"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"proa.dev/kinds/kind"
)

// Definition is the definition of a custom resource.
type Definition = apiextensionsv1.CustomResourceDefinition

// Caller sends a conversion review to its webhook and returns the response.
type Caller func(ctx context.Context, hook *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error)

// Resource is a custom resource as its definition describes it. It is immutable, except for the state of its webhook.
type Resource struct {
	// Definition is shared and read-only. It may be an outline, without the schemas of its versions.
	Definition *Definition
	// Served are the descriptors of the served versions, in the order of the definition.
	Served []*kind.Def
	// Stored is the descriptor of the storage version, which need not be served.
	Stored *kind.Def

	versions map[string]*version
	whole    func() *Definition // the definition with its schemas
	ctx      context.Context    // of the server: objects are converted, and rules evaluated, for requests and for caches
	call     Caller
	breaker  breaker // for calls of the webhook
	types    func() (Types, error)
}

// IsServed reports whether the names of a definition are accepted, so that its resource can be served.
func IsServed(d *Definition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) && d.Status.AcceptedNames.Plural != "" && d.Status.AcceptedNames.Kind != ""
}

// New describes the resource of a definition, of which an outline is enough, as long as ctx lasts. whole returns the
// same definition with its schemas; it is called when the first object is read or written. call sends requests to its
// conversion webhook.
func New(ctx context.Context, d *Definition, whole func() *Definition, call Caller) *Resource {
	r := &Resource{Definition: d, versions: map[string]*version{}, whole: whole, ctx: ctx, call: call}
	r.types = onceTypes(r)
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Served && !v.Storage {
			continue
		}
		own := newVersion(r, v)
		r.versions[v.Name] = own
		if v.Served {
			r.Served = append(r.Served, own.def)
		}
		if v.Storage {
			r.Stored = own.def
		}
	}
	return r
}

// isSame reports whether two definitions describe the same resource: their other fields do not affect its objects.
func isSame(a, b *Definition) bool {
	return a.UID == b.UID && a.Generation == b.Generation && isTerminating(a) == isTerminating(b) &&
		sameNames(&a.Status.AcceptedNames, &b.Status.AcceptedNames)
}

// DecodesLike reports whether a definition decodes stored objects as that of the resource does, so that a cache of them stays valid: it is
// the same one, or has only begun to be deleted, which increments its generation.
func (r *Resource) DecodesLike(d *Definition) bool {
	was := r.Definition
	begins := was.DeletionTimestamp == nil && d.DeletionTimestamp != nil && d.Generation == was.Generation+1
	return was.UID == d.UID && (was.Generation == d.Generation || begins) && sameNames(&was.Status.AcceptedNames, &d.Status.AcceptedNames)
}

// Describes reports whether a definition still describes the resource, so that it need not be made again.
func (r *Resource) Describes(d *Definition) bool { return isSame(r.Definition, d) }

func sameNames(a, b *apiextensionsv1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}

func isTerminating(d *Definition) bool {
	return d.DeletionTimestamp != nil ||
		slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Terminating && c.Status == apiextensionsv1.ConditionTrue
		})
}

// Versions returns the descriptors of all served versions and of the storage version.
func (r *Resource) Versions() (out []*kind.Def) {
	for _, v := range r.versions {
		out = append(out, v.def)
	}
	return out
}

// kindOf returns the kind of a version.
func (r *Resource) kindOf(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Definition.Spec.Group, Version: version, Kind: r.Definition.Status.AcceptedNames.Kind}
}

// describe returns the descriptor of a version.
func (v *version) describe() *kind.Def {
	d, names := v.resource.Definition, &v.resource.Definition.Status.AcceptedNames
	def := &kind.Def{
		Traits: kind.Traits{
			GroupVersionKind: v.resource.kindOf(v.spec.Name),
			Plural:           names.Plural, Singular: names.Singular, Short: names.ShortNames, Categories: names.Categories,
			Verbs:         []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}, // upstream's order
			StorageFolder: d.Spec.Group + "/" + names.Plural, StorageVersion: storageVersion(d),
			RequiresResourceVersion: true, Generation: true,
			FieldError: "field label not supported: %s",
		},
		ListKind:  names.ListKind,
		HasStatus: v.hasStatus(), JSONOnly: true,
		New:     func() kind.Object { return v.empty() },
		Default: v.setDefaults, Coerce: v.coerceObject, Load: v.load, LoadAll: v.loadAll, Store: v.store, Convert: v.resource.convert,
		Prepare: v.prepare, Validate: v.validate, Warn: warnFinalizers,
	}
	if d.Spec.Scope == apiextensionsv1.ClusterScoped {
		def.Scope = kind.Cluster
	}
	if v.hasStatus() {
		def.Reset = []string{"status"}
		def.Subs = append(def.Subs, v.statusSub())
	}
	if v.scale() != nil {
		def.Subs = append(def.Subs, v.scaleSub())
	}
	if v.spec.Deprecated {
		def.Deprecated = deprecation(d, v.spec)
	}
	if isTerminating(d) {
		def.Begin, def.Terminating = refuseCreate(def), true
	}
	def.Fields = v.fields()
	def.Columns, def.Row = columns(v.spec.AdditionalPrinterColumns)
	return def
}

// refuseCreate rejects new objects whose definition is being deleted.
func refuseCreate(def *kind.Def) func(context.Context, kind.Txn, kind.Object, kind.Object) error {
	return func(_ context.Context, _ kind.Txn, obj, old kind.Object) error {
		if obj == nil || old != nil {
			return nil
		}
		return apierrors.NewForbidden(def.Resource(), obj.GetName(),
			fmt.Errorf("create not allowed while custom resource definition is terminating"))
	}
}

// empty returns an object with nothing but its kind.
func (v *version) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v.resource.kindOf(v.spec.Name))
	return u
}

func storageVersion(d *Definition) string {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Storage {
			return d.Spec.Versions[i].Name
		}
	}
	return ""
}

// deprecation returns the warning for requests to a deprecated version.
func deprecation(d *Definition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, v.Name, d.Spec.Names.Kind)
	var better []string
	for i := range d.Spec.Versions {
		other := &d.Spec.Versions[i]
		if other.Served && !other.Deprecated && kubeversion.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 {
			better = append(better, other.Name)
		}
	}
	if len(better) == 0 {
		return text
	}
	sort.Slice(better, func(i, j int) bool { return kubeversion.CompareKubeAwareVersionStrings(better[i], better[j]) > 0 })
	return fmt.Sprintf("%s; use %s/%s %s", text, d.Spec.Group, better[0], d.Spec.Names.Kind)
}
