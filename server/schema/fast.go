package schema

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Most writes are simple: they do not send managedFields, and the object has one version and no duplicates. For these
// the owners follow from the two Go objects directly, some ten times cheaper than through the library. All other writes
// are left to the library, and tests verify that both give the same bytes.

// fastPath is what a manager needs for simple writes.
type fastPath struct {
	plan *plan
	skip skip
}

// unowned returns the fields that nobody owns, whoever writes them.
func unowned() skip {
	return skip{"apiVersion": nil, "kind": nil, "metadata": {
		"name": nil, "namespace": nil, "creationTimestamp": nil, "selfLink": nil, "uid": nil, "clusterName": nil,
		"generation": nil, "managedFields": nil, "resourceVersion": nil,
	}}
}

// buildFast returns nil when the kind has no plan.
func (m *Manager) buildFast() *fastPath {
	o := m.owner
	name, err := o.scheme.ToOpenAPIDefinitionName(m.target.Kind)
	if err != nil {
		return nil
	}
	example, err := o.scheme.New(m.target.Kind)
	if err != nil {
		return nil
	}
	t, err := o.types.kind(name)
	if err != nil || t == nil {
		return nil
	}
	p := o.types.plan(reflect.TypeOf(example), t)
	if p.shape != fields {
		return nil
	}
	out := unowned()
	for _, field := range m.target.Reset {
		at := out
		path := strings.Split(field, ".")
		for i, name := range path {
			below, ok := at[name]
			if i == len(path)-1 {
				at[name] = nil
			} else if !ok {
				at[name] = skip{}
			} else if below == nil {
				break // everything below is left out already
			}
			at = at[name]
		}
	}
	return &fastPath{plan: p, skip: out}
}

// update does what Manager.Update does, or returns false and has changed nothing.
func (f *fastPath) update(t *Target, live, obj runtime.Object, manager string) bool {
	if f == nil {
		return false
	}
	lv, rv := reflect.ValueOf(live), reflect.ValueOf(obj)
	if lv.Kind() != reflect.Pointer || lv.IsNil() || rv.IsNil() || lv.Type().Elem() != f.plan.goType || rv.Type() != lv.Type() {
		return false
	}
	l, err := meta.Accessor(live)
	if err != nil {
		return false
	}
	n, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	before := l.GetManagedFields()
	if !isSimpleWrite(t, before, n.GetManagedFields()) {
		return false
	}
	if len(before) == 0 && l.GetUID() != "" {
		n.SetManagedFields(nil) // owners that were never tracked, or were reset, stay so
		return true
	}
	d := differ{}
	changed, removed := d.compare(f.plan, side{lv.Elem(), true}, side{rv.Elem(), true}, f.skip)
	if d.gaveUp {
		return false
	}
	if changed == nil && removed == nil {
		n.SetManagedFields(slices.Clone(before))
		return true
	}
	after, ok := reassign(t, before, changed, removed, manager)
	if ok {
		n.SetManagedFields(after)
	}
	return ok
}

// maxUpdaters is how many managers of updates an object keeps; beyond it the library merges the oldest.
const maxUpdaters = 10

// isSimpleWrite reports whether a write leaves managedFields unchanged and all of them are of the version that is
// written. A subresource cannot write them in any case.
func isSimpleWrite(t *Target, before, sent []metav1.ManagedFieldsEntry) bool {
	if t.Subresource == "" && sent != nil && !slices.EqualFunc(before, sent, sameEntry) {
		return false
	}
	if t.Subresource == "" && sent != nil && len(sent) == 0 {
		return false // an empty list resets the owners
	}
	version := t.Kind.GroupVersion().String()
	for i := range before {
		e := &before[i]
		if e.APIVersion != version || e.FieldsType != "FieldsV1" || e.FieldsV1 == nil ||
			(e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate) {
			return false
		}
		for j := range i {
			if sameOwner(e, &before[j]) {
				return false
			}
		}
	}
	return true
}

func sameEntry(a, b metav1.ManagedFieldsEntry) bool {
	return sameOwner(&a, &b) && a.APIVersion == b.APIVersion && a.FieldsType == b.FieldsType && a.Time.Equal(b.Time) &&
		(a.FieldsV1 == nil) == (b.FieldsV1 == nil) && (a.FieldsV1 == nil || bytes.Equal(a.FieldsV1.GetRawBytes(), b.FieldsV1.GetRawBytes()))
}

// sameOwner reports whether two entries of the same version are of one manager.
func sameOwner(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
}

// reassign removes the changed and removed fields from their owners and adds the changed ones to the manager.
func reassign(t *Target, before []metav1.ManagedFieldsEntry, changed, removed *set, manager string) ([]metav1.ManagedFieldsEntry, bool) {
	if manager == "" {
		manager = "unknown"
	}
	self := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: t.Subresource,
		APIVersion: t.Kind.GroupVersion().String(), FieldsType: "FieldsV1",
	}
	after := make([]metav1.ManagedFieldsEntry, 0, len(before)+1)
	owned := changed
	updaters := 0
	for i := range before {
		e := before[i]
		had, err := parseSet(e.FieldsV1.GetRawString())
		if err != nil {
			return nil, false
		}
		left := had.minus(changed).minus(removed)
		if changed != nil && sameOwner(&e, &self) {
			owned = left.plus(changed)
			continue
		}
		if left.empty() {
			continue
		}
		if left != had {
			e.FieldsV1 = metav1.NewFieldsV1(string(left.json(make([]byte, 0, len(e.FieldsV1.GetRawBytes())))))
		}
		if e.Operation == metav1.ManagedFieldsOperationUpdate {
			updaters++
		}
		after = append(after, e)
	}
	if !owned.empty() {
		self.Time = &metav1.Time{Time: time.Now().UTC()}
		self.FieldsV1 = metav1.NewFieldsV1(string(owned.json(make([]byte, 0, 512))))
		after = append(after, self)
		updaters++
	}
	if updaters > maxUpdaters {
		return nil, false
	}
	if len(after) == 0 {
		return nil, true
	}
	slices.SortFunc(after, compareEntries)
	return after, true
}

// compareEntries orders the entries of managedFields.
func compareEntries(a, b metav1.ManagedFieldsEntry) int {
	return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(seconds(a.Time), seconds(b.Time)),
		cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}
