package server

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// encoder writes objects of one resource in the shapes and formats clients ask for.
type encoder struct {
	codec *codec.Codec
	def   *kind.Def
	f     format
	kept  *encodings // of objects of the cache, in the version of def; nil for none
}

// response writes an answer that is no watch. spill may take what is in the buffer after each item of a list; nil for never.
func (e *encoder) response(buf *bytes.Buffer, res *Response, spill func() error) error {
	if res.List != nil {
		return e.list(buf, res.List, spill)
	}
	if st, isStatus := res.Object.(*metav1.Status); isStatus {
		plain := *e
		plain.f.shape = whole
		return plain.raw(buf, st)
	}
	return e.object(buf, res.Object)
}

// object writes one object in the version of its kind.
func (e *encoder) object(buf *bytes.Buffer, obj runtime.Object) error {
	o, isObject := obj.(kind.Object)
	switch {
	case isObject && e.f.shape == tabular:
		obj = e.table([]kind.Object{o}, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, true)
	case isObject && e.f.shape == partial:
		obj = e.partialOf(o)
	}
	return e.raw(buf, obj)
}

// raw writes an object that carries its kind.
func (e *encoder) raw(buf *bytes.Buffer, obj runtime.Object) error {
	if !e.f.pretty || e.f.media != codec.JSON {
		return e.codec.Append(buf, e.f.media, obj)
	}
	b, err := json.MarshalIndent(obj, "", "  ")
	buf.Write(b)
	return err
}

// seen is a stored object in the version of the request, and in the form for nodes where that is asked for.
func (e *encoder) seen(o kind.Object) kind.Object {
	if e.f.forNodes {
		o = e.def.Storage().ForNodes.Show(o)
	}
	return fromHub(e.def, o)
}

// list writes a collection. The items are written one by one, without a typed list in between, and spill may take what is in
// the buffer after each; nil for never.
func (e *encoder) list(buf *bytes.Buffer, l *List, spill func() error) error {
	if e.f.shape == tabular {
		return e.tables(buf, l, spill)
	}
	listKind, apiVersion := e.def.ListKindName(), e.def.GroupVersion().String()
	item := e.seen
	if e.f.shape == partial {
		listKind, apiVersion = "PartialObjectMetadataList", e.metaVersion()
		item = func(o kind.Object) kind.Object { return e.partialOf(e.seen(o)) }
	}
	if e.f.media == codec.Proto {
		return protoList(buf, &runtime.TypeMeta{APIVersion: apiVersion, Kind: listKind}, l, item, spill)
	}
	s, err := e.collection(apiVersion, listKind, l, item)
	if err != nil {
		return err
	}
	s.spill = spill
	return e.sequence(buf, s)
}

// tables writes a collection as a table.
func (e *encoder) tables(buf *bytes.Buffer, l *List, spill func() error) error {
	if len(l.Items) == 1 { // which may be a projection, with columns of another kind
		return e.raw(buf, e.table([]kind.Object{e.seen(l.Items[0].Object())}, l.Meta, true))
	}
	s, err := e.tableOf(l)
	if err != nil {
		return err
	}
	s.spill = spill
	return e.sequence(buf, s)
}

// dropType removes kind and apiVersion, which items of a list do not carry. Every type has them first.
func dropType(buf *bytes.Buffer, at int) {
	text := buf.Bytes()[at:]
	end := bytes.Index(text, []byte(`"metadata":`))
	if end <= 1 || !bytes.HasPrefix(text, []byte(`{"kind":`)) {
		return
	}
	copy(text[1:], text[end:])
	buf.Truncate(buf.Len() - end + 1)
}

type protoMessage interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

func protoField(buf *bytes.Buffer, number byte, m protoMessage) error {
	n := m.Size()
	protoHead(buf, number, n)
	buf.Grow(n)
	b := buf.AvailableBuffer()[:n]
	if _, err := m.MarshalToSizedBuffer(b); err != nil {
		return err
	}
	buf.Write(b)
	return nil
}

// protoHead writes the tag and length of a field of bytes.
func protoHead(buf *bytes.Buffer, number byte, n int) {
	buf.WriteByte(number<<3 | 2)
	v := uint64(n)
	for ; v >= 0x80; v >>= 7 {
		buf.WriteByte(byte(v) | 0x80)
	}
	buf.WriteByte(byte(v))
}

func varintLen(n int) int {
	size := 1
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// metaVersion is the version of tables and metadata the client asked for.
func (e *encoder) metaVersion() string {
	if e.f.meta != "" {
		return "meta.k8s.io/" + e.f.meta
	}
	return "meta.k8s.io/v1"
}

// partialOf is the metadata of an object as an object of its own.
func (e *encoder) partialOf(o kind.Object) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: e.metaVersion()}}
	switch m := o.(type) {
	case interface{ GetObjectMeta() metav1.Object }:
		if full, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			p.ObjectMeta = *full
		}
	case *unstructured.Unstructured:
		content, _ := m.Object["metadata"].(map[string]any)
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &p.ObjectMeta) // it was one when it was stored
	}
	if _, found := p.Annotations[e.def.Hidden]; found {
		p = p.DeepCopy()
		if delete(p.Annotations, e.def.Hidden); len(p.Annotations) == 0 {
			p.Annotations = nil
		}
	}
	return p
}

// table shows objects as rows.
func (e *encoder) table(objects []kind.Object, meta metav1.ListMeta, columns bool) *metav1.Table {
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: e.metaVersion()}, ListMeta: meta}
	if len(objects) == 1 && !e.def.Is(objects[0]) { // a projection, which has no columns of its own
		other := *e
		other.def = e.def.Showing(objects[0])
		e = &other
	}
	if columns {
		t.ColumnDefinitions = e.def.Columns
	}
	t.Rows = make([]metav1.TableRow, 0, len(objects))
	mark := e.marks(objects)
	for _, o := range objects {
		t.Rows = append(t.Rows, *e.row(o, mark))
	}
	return t
}

// marks returns what completes the cells of a row by what else is in the list.
func (e *encoder) marks(objects []kind.Object) func(kind.Object, []any) {
	if e.def.InList == nil {
		return func(kind.Object, []any) {}
	}
	return e.def.InList(objects)
}

// row shows an object as a row.
func (e *encoder) row(o kind.Object, mark func(kind.Object, []any)) *metav1.TableRow {
	row := &metav1.TableRow{Cells: e.def.Row(o)}
	mark(o, row.Cells)
	if e.def.RowConditions != nil {
		row.Conditions = e.def.RowConditions(o)
	}
	switch e.f.include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		row.Object.Object = o
	default:
		row.Object.Object = e.partialOf(o)
	}
	return row
}

// frame writes one event of a watch.
func (e *encoder) frame(t watch.Type, obj kind.Object, header bool) ([]byte, error) {
	var inner bytes.Buffer
	var shown runtime.Object = e.seen(obj)
	switch e.f.shape {
	case tabular:
		shown = e.table([]kind.Object{e.seen(obj)}, metav1.ListMeta{ResourceVersion: obj.GetResourceVersion()}, header)
	case partial:
		shown = e.partialOf(e.seen(obj))
	case whole:
	}
	if err := e.codec.Append(&inner, e.f.media, shown); err != nil {
		return nil, err
	}
	return e.wrap(t.String(), inner.Bytes())
}

// wrap puts an encoded object into an event.
func (e *encoder) wrap(eventType string, object []byte) ([]byte, error) {
	if e.f.media != codec.Proto {
		object = bytes.TrimSuffix(object, []byte("\n"))
		b := make([]byte, 0, len(object)+40)
		b = append(b, `{"type":"`...)
		b = append(b, eventType...)
		b = append(b, `","object":`...)
		b = append(b, object...)
		return append(b, "}\n"...), nil
	}
	ev := metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: object}}
	n := ev.Size()
	b := make([]byte, 4+n)
	b[0], b[1], b[2], b[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	_, err := ev.MarshalToSizedBuffer(b[4:])
	return b, err
}
