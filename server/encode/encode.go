// Package encode writes objects, lists and watch events in the media types and shapes that clients ask for: JSON, YAML
// or protobuf; whole objects, their metadata, or tables. It also keeps encodings of custom objects, and records answers
// in the audit log.
package encode

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/internal/printable"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/collection"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// Encoder writes the objects of one resource in the format that a client asked for.
type Encoder struct {
	Codec  *codec.Codec
	Def    *kind.Def
	Format Format
	Cache  *Cache // encodings of custom objects; nil for none
}

// Response writes an answer that is no watch. spill, if not nil, is called after each item of a list and may empty the
// buffer.
func (e *Encoder) Response(buf *bytes.Buffer, res *server.Response, spill func() error) error {
	if res.List != nil {
		return e.list(buf, res.List, spill)
	}
	if st, isStatus := res.Object.(*metav1.Status); isStatus {
		whole := *e
		whole.Format.Shape = Whole
		return whole.Raw(buf, st)
	}
	return e.object(buf, res.Object)
}

// object writes one object, which is in the version of the request, in the shape of the format.
func (e *Encoder) object(buf *bytes.Buffer, obj runtime.Object) error {
	o, isObject := obj.(kind.Object)
	switch {
	case isObject && e.Format.Shape == Table:
		obj = e.table([]kind.Object{o}, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, true)
	case isObject && e.Format.Shape == MetadataOnly:
		obj = e.metadataOf(o)
	}
	return e.Raw(buf, obj)
}

// Raw writes an object as it is, which has its kind and apiVersion.
func (e *Encoder) Raw(buf *bytes.Buffer, obj runtime.Object) error {
	if !e.Format.Pretty || e.Format.Media != codec.JSON {
		return e.Codec.Append(buf, e.Format.Media, obj)
	}
	b, err := json.MarshalIndent(obj, "", "  ")
	buf.Write(b)
	return err
}

// convert returns a stored object in the version of the request, and in the form for nodes if the format says so.
func (e *Encoder) convert(o kind.Object) kind.Object {
	if e.Format.ForNodes {
		o = e.Def.Storage().ForNodes.Show(o)
	}
	return state.FromHub(e.Def, o)
}

// list writes a collection. The items are written one by one, without a typed list in between. spill, if not nil, is
// called after each and may empty the buffer.
func (e *Encoder) list(buf *bytes.Buffer, l *collection.List, spill func() error) error {
	if e.Format.Shape == Table {
		return e.tables(buf, l, spill)
	}
	listKind, apiVersion := e.Def.ListKindName(), e.Def.GroupVersion().String()
	item := e.convert
	if e.Format.Shape == MetadataOnly {
		listKind, apiVersion = "PartialObjectMetadataList", e.metaVersion()
		item = func(o kind.Object) kind.Object { return e.metadataOf(e.convert(o)) }
	}
	if e.Format.Media == codec.Proto {
		return protoList(buf, &runtime.TypeMeta{APIVersion: apiVersion, Kind: listKind}, l, item, spill)
	}
	s, err := e.collection(apiVersion, listKind, l, item)
	if err != nil {
		return err
	}
	s.spill = spill
	return e.writeSequence(buf, s)
}

// tables writes a collection as a table.
func (e *Encoder) tables(buf *bytes.Buffer, l *collection.List, spill func() error) error {
	if len(l.Items) == 1 { // it may be a projection such as scale, with columns of another kind
		return e.Raw(buf, e.table([]kind.Object{e.convert(l.Items[0].Object())}, l.Meta, true))
	}
	s, err := e.tableOf(l)
	if err != nil {
		return err
	}
	s.spill = spill
	return e.writeSequence(buf, s)
}

// dropType removes kind and apiVersion, which items of a list do not have, from the JSON that begins at an offset. They
// are its first fields.
func dropType(buf *bytes.Buffer, at int) {
	text := buf.Bytes()[at:]
	end := bytes.Index(text, []byte(`"metadata":`))
	if end <= 1 || !bytes.HasPrefix(text, []byte(`{"kind":`)) {
		return
	}
	copy(text[1:], text[end:])
	buf.Truncate(buf.Len() - end + 1)
}

// protoMessage is a generated protobuf message.
type protoMessage interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// protoField writes a message as a field of another one.
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

// protoHead writes the tag and the length of a field.
func protoHead(buf *bytes.Buffer, number byte, n int) {
	buf.WriteByte(number<<3 | 2)
	v := uint64(n)
	for ; v >= 0x80; v >>= 7 {
		buf.WriteByte(byte(v) | 0x80)
	}
	buf.WriteByte(byte(v))
}

// varintLen returns how many bytes a number takes as a varint.
func varintLen(n int) int {
	size := 1
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// metaVersion returns the version of tables and metadata that the client asked for.
func (e *Encoder) metaVersion() string {
	if e.Format.Meta != "" {
		return "meta.k8s.io/" + e.Format.Meta
	}
	return "meta.k8s.io/v1"
}

// metadataOf returns the metadata of an object as a PartialObjectMetadata.
func (e *Encoder) metadataOf(o kind.Object) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: e.metaVersion()}}
	switch m := o.(type) {
	case interface{ GetObjectMeta() metav1.Object }:
		if full, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			p.ObjectMeta = *full
		}
	case *unstructured.Unstructured:
		content, _ := m.Object["metadata"].(map[string]any)
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &p.ObjectMeta) // it was valid when it was stored
	}
	if _, found := p.Annotations[e.Def.HiddenAnnotation]; found {
		p = p.DeepCopy()
		if delete(p.Annotations, e.Def.HiddenAnnotation); len(p.Annotations) == 0 {
			p.Annotations = nil
		}
	}
	return p
}

// table returns a Table with a row for each object. With columns it has their definitions too.
func (e *Encoder) table(objects []kind.Object, meta metav1.ListMeta, columns bool) *metav1.Table {
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: e.metaVersion()}, ListMeta: meta}
	if len(objects) == 1 && !e.Def.HasType(objects[0]) { // a projection such as scale has the columns of its own kind
		other := *e
		other.Def = e.Def.WithColumnsFor(objects[0])
		e = &other
	}
	if columns {
		t.ColumnDefinitions = e.Def.Columns
	}
	t.Rows = make([]metav1.TableRow, 0, len(objects))
	mark := e.marks(objects)
	for _, o := range objects {
		t.Rows = append(t.Rows, *e.row(o, mark))
	}
	return t
}

// marks returns the function that completes the cells of a row by what the other objects of the list are.
func (e *Encoder) marks(objects []kind.Object) func(kind.Object, []any) {
	if e.Def.InList == nil {
		return func(kind.Object, []any) {}
	}
	return e.Def.InList(objects)
}

// row returns the row of an object in a Table.
func (e *Encoder) row(o kind.Object, mark func(kind.Object, []any)) *metav1.TableRow {
	row := &metav1.TableRow{Cells: e.Def.Row(o)}
	mark(o, row.Cells)
	if e.Def.Computed != nil {
		// Causes, commands and messages are texts of many users; kubectl prints cells as they are, but for the escape character.
		for i, c := range row.Cells {
			if text, isText := c.(string); isText {
				row.Cells[i] = printable.Text(text)
			}
		}
	}
	if e.Def.RowConditions != nil {
		row.Conditions = e.Def.RowConditions(o)
	}
	switch e.Format.Include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		row.Object.Object = o
	default:
		row.Object.Object = e.metadataOf(o)
	}
	return row
}

// Event returns the bytes of one watch event. The first event as a Table has the definitions of the columns, which
// header asks for.
func (e *Encoder) Event(t watch.Type, obj kind.Object, header bool) ([]byte, error) {
	var inner bytes.Buffer
	var shown runtime.Object = e.convert(obj)
	switch e.Format.Shape {
	case Table:
		shown = e.table([]kind.Object{e.convert(obj)}, metav1.ListMeta{ResourceVersion: obj.GetResourceVersion()}, header)
	case MetadataOnly:
		shown = e.metadataOf(e.convert(obj))
	case Whole:
	}
	if err := e.Codec.Append(&inner, e.Format.Media, shown); err != nil {
		return nil, err
	}
	return e.WrapEvent(t.String(), inner.Bytes())
}

// WrapEvent returns the bytes of a watch event with an encoded object.
func (e *Encoder) WrapEvent(eventType string, object []byte) ([]byte, error) {
	if e.Format.Media != codec.Proto {
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
