package schema

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// differ compares two objects and collects the fields that changed (were added or modified) and those that were
// removed, as structured-merge-diff would. When it meets something that it does not support, it gives up.
//
// Its buffers grow with the first objects and are reused within one comparison: changed and removed hold the children
// of all nodes that are not finished, items the elements of all lists that are not finished.
type differ struct {
	gaveUp           bool
	changed, removed []child
	items            []item
	children         []child // storage for the children of finished nodes
	sets             []set   // storage for finished nodes
}

// node finishes a node. Its children are the entries of unfinished from a position on.
func (d *differ) node(member bool, open *[]child, from int) *set {
	n := len(*open) - from
	if n == 0 {
		if member {
			return leafSet
		}
		return nil
	}
	if cap(d.children)-len(d.children) < n {
		d.children = make([]child, 0, max(n, nextCapacity(cap(d.children))))
	}
	at := len(d.children)
	d.children = append(d.children, (*open)[from:]...)
	*open = (*open)[:from]
	if len(d.sets) == cap(d.sets) {
		d.sets = make([]set, 0, nextCapacity(cap(d.sets)))
	}
	d.sets = append(d.sets, set{member: member, children: d.children[at : at+n : at+n]})
	return &d.sets[len(d.sets)-1]
}

// nextCapacity returns how much to allocate when a buffer is used up: little for small objects, which are most.
func nextCapacity(had int) int { return min(max(8, 2*had), 256) }

// skip is a tree of fields to leave out; a node without children leaves out everything below it.
type skip map[string]skip

// side is one of the two values of a field. It is absent when the field is not in the JSON form.
type side struct {
	v       reflect.Value
	present bool
}

// deref follows pointers. A nil pointer, slice or map is null, which is not the same as absent.
func (s side) deref() (v reflect.Value, null bool) {
	if !s.present {
		return reflect.Value{}, true
	}
	v = s.v
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return v, true
		}
		v = v.Elem()
	}
	if k := v.Kind(); (k == reflect.Map || k == reflect.Slice) && v.IsNil() {
		return v, true
	}
	return v, false
}

func (d *differ) compare(p *plan, l, r side, out skip) (changed, removed *set) {
	if d.gaveUp || (!l.present && !r.present) {
		return nil, nil
	}
	switch p.shape {
	case whole:
		return d.whole(p, l, r)
	case fields:
		return d.fields(p, l, r, out)
	case entries:
		return d.entries(p, l, r)
	case keyed, members:
		return d.list(p, l, r)
	case opaque:
	}
	if !l.present || !r.present || !equal(l.v, r.v) {
		d.gaveUp = true
	}
	return nil, nil
}

// whole compares two values that have a single owner each.
func (d *differ) whole(p *plan, l, r side) (changed, removed *set) {
	switch {
	case !l.present:
		return leafSet, nil
	case !r.present:
		return nil, leafSet
	case !d.sameJSON(p, l, r):
		return leafSet, nil
	}
	return nil, nil
}

// finish finishes a composite value. If one side lacks it, the value is a field itself, in addition to its content.
func (d *differ) finish(l, r side, changed, removed int) (*set, *set) {
	return d.node(!l.present, &d.changed, changed), d.node(!r.present, &d.removed, removed)
}

// addChild adds a child to the current node.
func (d *differ) addChild(name string, changed, removed *set) {
	if changed != nil {
		d.changed = append(d.changed, child{name, changed})
	}
	if removed != nil {
		d.removed = append(d.removed, child{name, removed})
	}
}

func (d *differ) fields(p *plan, l, r side, out skip) (*set, *set) {
	lv, lnull := l.deref()
	rv, rnull := r.deref()
	changed, removed := len(d.changed), len(d.removed)
	content := false
	for i := range p.fields {
		f := &p.fields[i]
		below, left := out[f.json]
		if left && len(below) == 0 {
			continue
		}
		var a, b side
		if !lnull {
			a = f.of(lv)
		}
		if !rnull {
			b = f.of(rv)
		}
		if !a.present && !b.present {
			continue
		}
		content = true
		c, m := d.compare(f.plan, a, b, below)
		if d.gaveUp {
			return nil, nil
		}
		d.addChild(f.name, c, m)
	}
	if !content && len(out) == 0 {
		return d.compareEmpty(l, r, lnull, rnull)
	}
	return d.finish(l, r, changed, removed)
}

// compareEmpty compares two composite values without content: null and empty are different.
func (d *differ) compareEmpty(l, r side, lnull, rnull bool) (changed, removed *set) {
	switch {
	case !l.present:
		return leafSet, nil
	case !r.present:
		return nil, leafSet
	case lnull != rnull:
		return leafSet, nil
	}
	return nil, nil
}

// of returns the field of a struct as it appears in JSON.
func (f *planField) of(v reflect.Value) side {
	for _, i := range f.index {
		v = v.Field(i)
	}
	if f.omitEmpty && isEmpty(v) || f.omitZero != nil && f.omitZero(v) {
		return side{}
	}
	return side{v, true}
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	case reflect.Interface, reflect.Pointer:
		return v.IsNil()
	}
	return v.IsZero()
}

func (d *differ) entries(p *plan, l, r side) (*set, *set) {
	lv, lnull := l.deref()
	rv, rnull := r.deref()
	var names []string
	if !lnull {
		for it := lv.MapRange(); it.Next(); {
			names = append(names, it.Key().String())
		}
	}
	if !rnull {
		for it := rv.MapRange(); it.Next(); {
			if key := it.Key(); lnull || !lv.MapIndex(key).IsValid() {
				names = append(names, key.String())
			}
		}
	}
	if len(names) == 0 {
		return d.compareEmpty(l, r, lnull, rnull)
	}
	slices.Sort(names)
	changed, removed := len(d.changed), len(d.removed)
	for _, name := range names {
		key := reflect.ValueOf(name).Convert(p.goType.Key())
		var a, b side
		if !lnull {
			a.v = lv.MapIndex(key)
			a.present = a.v.IsValid()
		}
		if !rnull {
			b.v = rv.MapIndex(key)
			b.present = b.v.IsValid()
		}
		c, m := d.compare(p.element, a, b, nil)
		if d.gaveUp {
			return nil, nil
		}
		if c != nil || m != nil {
			d.addChild(escape("f:"+name), c, m)
		}
	}
	return d.finish(l, r, changed, removed)
}

// item is an element of a list with its key.
type item struct {
	key [maxKeys]keyValue
	v   reflect.Value
}

func (d *differ) list(p *plan, l, r side) (*set, *set) {
	lv, lnull := l.deref()
	rv, rnull := r.deref()
	if (lnull || lv.Len() == 0) && (rnull || rv.Len() == 0) {
		return d.compareEmpty(l, r, lnull, rnull)
	}
	scratch := len(d.items)
	left, right := d.elements(p, lv, lnull), d.elements(p, rv, rnull)
	if d.gaveUp {
		return nil, nil
	}
	changed, removed := len(d.changed), len(d.removed)
	i, j := 0, 0
	for i < len(left) || j < len(right) {
		c := 0
		switch {
		case i == len(left):
			c = 1
		case j == len(right):
			c = -1
		default:
			c = compareKeys(&left[i].key, &right[j].key)
		}
		var a, b side
		var key *[maxKeys]keyValue
		if c <= 0 {
			a, key = side{left[i].v, true}, &left[i].key
			i++
		}
		if c >= 0 {
			b, key = side{right[j].v, true}, &right[j].key
			j++
		}
		ch, rm := d.compare(p.element, a, b, nil)
		if ch == nil && rm == nil {
			continue
		}
		name, ok := keyName(p, key)
		if d.gaveUp = d.gaveUp || !ok; d.gaveUp {
			return nil, nil
		}
		d.addChild(name, ch, rm)
	}
	d.items = d.items[:scratch]
	return d.finish(l, r, changed, removed)
}

// elements returns the elements of a list in the order of their keys. It gives up on duplicate keys.
func (d *differ) elements(p *plan, v reflect.Value, null bool) []item {
	if null {
		return nil
	}
	from := len(d.items)
	d.items = slices.Grow(d.items, v.Len())[:from+v.Len()]
	out := d.items[from:]
	for i := range out {
		out[i] = item{v: v.Index(i)}
		if p.shape == members {
			out[i].key[0] = scalarKey(out[i].v)
			continue
		}
		found := false
		for k := range p.keys {
			out[i].key[k] = p.keys[k].missing
			if s := p.keys[k].field.of(out[i].v); s.present {
				kv, null := s.deref()
				if null {
					d.gaveUp = true
					return nil
				}
				out[i].key[k] = scalarKey(kv)
			}
			found = found || out[i].key[k].kind != 0
		}
		if !found {
			d.gaveUp = true
			return nil
		}
	}
	byKey := func(a, b item) int { return compareKeys(&a.key, &b.key) }
	if !slices.IsSortedFunc(out, byKey) {
		slices.SortFunc(out, byKey)
	}
	for i := 1; i < len(out); i++ {
		if out[i].key == out[i-1].key {
			d.gaveUp = true
			return nil
		}
	}
	return out
}

func scalarKey(v reflect.Value) keyValue {
	switch v.Kind() {
	case reflect.String:
		return keyValue{kind: reflect.String, s: v.String()}
	case reflect.Bool:
		k := keyValue{kind: reflect.Bool}
		if v.Bool() {
			k.i = 1
		}
		return k
	}
	return keyValue{kind: reflect.Int64, i: v.Int()}
}

// compareKeys orders keys as the library orders items: by the names of the fields that they have, and by the values of
// those that both have. Fields are in the order of their names.
func compareKeys(a, b *[maxKeys]keyValue) int {
	i, j := 0, 0
	for {
		for i < maxKeys && a[i].kind == 0 {
			i++
		}
		for j < maxKeys && b[j].kind == 0 {
			j++
		}
		switch {
		case i == maxKeys && j == maxKeys:
			return 0
		case i == maxKeys:
			return -1
		case j == maxKeys:
			return 1
		case i != j:
			return cmp.Compare(i, j)
		}
		if c := cmp.Or(cmp.Compare(a[i].i, b[j].i), strings.Compare(a[i].s, b[j].s)); c != 0 {
			return c
		}
		i++
		j++
	}
}

// keyName returns the key of an item as its name in a set.
func keyName(p *plan, key *[maxKeys]keyValue) (string, bool) {
	if p.shape == members {
		text, ok := scalarText(key[0])
		return escape("v:" + text), ok
	}
	b := []byte(`k:{`)
	for i := range p.keys {
		if key[i].kind == 0 {
			continue
		}
		if len(b) > 3 {
			b = append(b, ',')
		}
		text, ok := scalarText(key[i])
		if !ok {
			return "", false
		}
		b = append(b, '"')
		b = append(b, p.keys[i].json...)
		b = append(b, '"', ':')
		b = append(b, text...)
	}
	return escape(string(append(b, '}'))), true
}

// scalarText returns a value as JSON. Strings with special characters are encoded by the library.
func scalarText(k keyValue) (string, bool) {
	switch k.kind {
	case reflect.Bool:
		return strconv.FormatBool(k.i == 1), true
	case reflect.Int64:
		return strconv.FormatInt(k.i, 10), true
	}
	for i := range len(k.s) {
		if c := k.s[i]; c < 0x20 || c > 0x7e || strings.IndexByte(`"\<>&`, c) >= 0 {
			v := value.NewValueInterface(k.s)
			text, err := fieldpath.SerializePathElement(fieldpath.PathElement{Value: &v})
			return strings.TrimPrefix(text, "v:"), err == nil
		}
	}
	return `"` + k.s + `"`, true
}

// sameJSON reports whether two values have the same JSON form.
func (d *differ) sameJSON(p *plan, l, r side) bool {
	lv, lnull := l.deref()
	rv, rnull := r.deref()
	if lnull || rnull {
		d.gaveUp = d.gaveUp || p.mixed
		return lnull && rnull
	}
	switch p.goType {
	case reflect.TypeFor[resource.Quantity]():
		a, b := lv.Interface().(resource.Quantity), rv.Interface().(resource.Quantity)
		return a == b || a.String() == b.String()
	case reflect.TypeFor[metav1.Time]():
		a, b := lv.Interface().(metav1.Time), rv.Interface().(metav1.Time)
		return a.Unix() == b.Unix() && a.IsZero() == b.IsZero()
	}
	if equal(lv, rv) {
		return true
	}
	switch lv.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		return false
	}
	a, errA := value.NewValueReflect(pointer(lv))
	b, errB := value.NewValueReflect(pointer(rv))
	if errA != nil || errB != nil {
		d.gaveUp = true
		return false
	}
	return value.Equals(a, b)
}

// pointer returns a pointer to a value, or to a copy of it if it lives in a map.
func pointer(v reflect.Value) any {
	if v.CanAddr() {
		return v.Addr().Interface()
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface()
}

// equal compares Go values. Values that are equal here have the same JSON form; others may still have it.
func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return a.Uint() == b.Uint()
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float()
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() || a.Pointer() == b.Pointer() {
			return a.Pointer() == b.Pointer()
		}
		return equal(a.Elem(), b.Elem())
	case reflect.Slice:
		return equalSlices(a, b)
	case reflect.Map:
		return equalMaps(a, b)
	case reflect.Struct:
		for i := range a.NumField() {
			if !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return false
}

func equalSlices(a, b reflect.Value) bool {
	if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
		return false
	}
	if a.Pointer() == b.Pointer() {
		return true
	}
	for i := range a.Len() {
		if !equal(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func equalMaps(a, b reflect.Value) bool {
	if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
		return false
	}
	for it := a.MapRange(); it.Next(); {
		other := b.MapIndex(it.Key())
		if !other.IsValid() || !equal(it.Value(), other) {
			return false
		}
	}
	return true
}
