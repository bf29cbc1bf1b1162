package schema

import (
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Owner hands out the managers of all kinds. It is safe for concurrent use.
type Owner struct {
	scheme    *runtime.Scheme
	convertor runtime.ObjectConvertor
	defaulter runtime.ObjectDefaulter
	types     *types

	mu       sync.Mutex // guards managers
	managers map[string]*Manager
}

// New returns an owner for the kinds of a scheme. The convertor converts between versions of one kind,
// where a kind has several; nil means the scheme itself. The defaulter runs on the result of an apply;
// nil means the scheme's defaulting functions.
func New(scheme *runtime.Scheme, convertor runtime.ObjectConvertor, defaulter runtime.ObjectDefaulter) *Owner {
	if convertor == nil {
		convertor = scheme
	}
	if defaulter == nil {
		defaulter = scheme
	}
	return &Owner{
		scheme:    scheme,
		convertor: sameVersion{convertor, scheme},
		defaulter: defaulter,
		types:     newTypes(),
		managers:  map[string]*Manager{},
	}
}

// Target is one way to write an object.
type Target struct {
	// Kind is the kind and version of the request.
	Kind schema.GroupVersionKind
	// Hub is the version that objects are stored in; empty means the version of the request.
	Hub schema.GroupVersion
	// Subresource is empty for the object itself.
	Subresource string
	// Reset lists the fields that this way of writing cannot change, such as "status" or "metadata.labels". The writer
	// does not become their owner.
	Reset []string
}

// For returns the manager of a target. It does next to nothing: what the manager needs is read when it is first used.
func (o *Owner) For(t Target) *Manager {
	if t.Hub.Empty() {
		t.Hub = t.Kind.GroupVersion()
	}
	key := strings.Join([]string{t.Kind.String(), t.Hub.String(), t.Subresource, strings.Join(t.Reset, ",")}, "|")
	o.mu.Lock()
	defer o.mu.Unlock()
	m, ok := o.managers[key]
	if !ok {
		m = &Manager{target: t, owner: o, versions: o.scheme.VersionsForGroupKind(t.Kind.GroupKind())}
		m.library = sync.OnceValues(m.build)
		m.fast = sync.OnceValue(m.buildFast)
		o.managers[key] = m
	}
	return m
}

// Custom returns the manager of a custom resource, whose types and conversions come from its definition.
// Objects are unstructured. The caller keeps it as long as the definition does not change.
func (o *Owner) Custom(t Target, c CustomTypes) *Manager {
	if t.Hub.Empty() {
		t.Hub = t.Kind.GroupVersion()
	}
	m := &Manager{target: t, owner: o, versions: c.Versions}
	m.fast = func() *fastPath { return nil }
	m.library = sync.OnceValues(func() (*managedfields.FieldManager, error) {
		return managedfields.NewDefaultCRDFieldManager(c.Types, c.Convertor, c.Defaulter, c.Creater, t.Kind, t.Hub, t.Subresource,
			m.reset())
	})
	return m
}

// CustomTypes holds the types and conversions of a custom resource. managedfields.NewTypeConverter makes Types from
// schemas, managedfields.NewDeducedTypeConverter without any.
type CustomTypes struct {
	Types     managedfields.TypeConverter
	Convertor runtime.ObjectConvertor
	Defaulter runtime.ObjectDefaulter
	Creater   runtime.ObjectCreater
	// Versions are all served versions, because owners may have written any of them.
	Versions []schema.GroupVersion
}

// Manager tracks the field owners of the objects of one target. It is safe for concurrent use.
type Manager struct {
	target   Target
	owner    *Owner
	versions []schema.GroupVersion
	library  func() (*managedfields.FieldManager, error)
	fast     func() *fastPath
}

func (m *Manager) build() (*managedfields.FieldManager, error) {
	o, t := m.owner, m.target
	return managedfields.NewDefaultFieldManager(&typeConverter{o.scheme, o.types}, o.convertor, o.defaulter, o.scheme,
		t.Kind, t.Hub, t.Subresource, m.reset())
}

// reset returns the filters of the fields that the target cannot change, by version, because the owners of a field may
// have written other versions of the kind than this request.
func (m *Manager) reset() map[fieldpath.APIVersion]fieldpath.Filter {
	if len(m.target.Reset) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, field := range m.target.Reset {
		var path fieldpath.Path
		for name := range strings.SplitSeq(field, ".") {
			path = append(path, fieldpath.FieldNameElement(name))
		}
		set.Insert(path)
	}
	filter := fieldpath.NewExcludeSetFilter(set)
	filters := map[fieldpath.APIVersion]fieldpath.Filter{
		fieldpath.APIVersion(m.target.Kind.GroupVersion().String()): filter,
		fieldpath.APIVersion(m.target.Hub.String()):                 filter,
	}
	for _, gv := range m.versions {
		filters[fieldpath.APIVersion(gv.String())] = filter
	}
	return filters
}

// Apply merges an applied configuration into the live object and returns the result in the hub version, with defaults.
// live is the stored object, or an empty one when the apply creates it; it is not changed. When another manager owns a
// field that would change and force is not set, the error is a Conflict status with one cause for each field. A patch
// that sets managedFields, or is of another kind or version, is a BadRequest.
func (m *Manager) Apply(live runtime.Object, patch map[string]any, manager string, force Force) (_ runtime.Object, err error) {
	defer recoverError(&err)
	lib, err := m.library()
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	config := &unstructured.Unstructured{Object: patch}
	if err := checkSize(live, config); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	return lib.Apply(live, config, manager, bool(force))
}

// Force says whether an apply takes over fields that others own.
type Force bool

// Update records in obj who owns what after an ordinary write by manager. live is the object before the write, or an
// empty one on create; it is not changed. The result is obj itself.
//
// A write never fails because of its managedFields: on an error obj keeps the managedFields of live and may be stored;
// the error is for the log.
func (m *Manager) Update(live, obj runtime.Object, manager string) (runtime.Object, error) {
	if m.fast().update(&m.target, live, obj, manager) {
		return obj, nil
	}
	return m.slowUpdate(live, obj, manager)
}

// slowUpdate is Update by the library.
func (m *Manager) slowUpdate(live, obj runtime.Object, manager string) (runtime.Object, error) {
	err := m.libraryUpdate(live, obj, manager)
	if err == nil {
		return obj, nil
	}
	if l, lerr := meta.Accessor(live); lerr == nil {
		if n, nerr := meta.Accessor(obj); nerr == nil {
			n.SetManagedFields(l.GetManagedFields())
		}
	}
	return obj, fmt.Errorf("track field owners of %s: %w", m.target.Kind.Kind, err)
}

func (m *Manager) libraryUpdate(live, obj runtime.Object, manager string) (err error) {
	defer recoverError(&err)
	lib, err := m.library()
	if err != nil {
		return err
	}
	if err := checkSize(live, obj); err != nil {
		return err
	}
	_, err = lib.Update(live, obj, manager)
	return err
}

// recoverError turns a panic into an error. The library panics on values that cannot be represented as JSON, and
// clients can send such values in protobuf.
func recoverError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("field owners: %v", p)
	}
}
