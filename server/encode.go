package server

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// encoder writes objects of one resource in the shapes and formats clients ask for.
type encoder struct {
	codec *codec.Codec
	def   *kind.Def
	f     format
}

// response writes an answer that is no watch.
func (e *encoder) response(buf *bytes.Buffer, res *Response) error {
	if res.List != nil {
		return e.list(buf, res.List)
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

// seen is a stored object in the version of the request.
func (e *encoder) seen(o kind.Object) kind.Object { return fromHub(e.def, o) }

// list writes a collection. The items are written one by one, without a typed list in between.
func (e *encoder) list(buf *bytes.Buffer, l *List) error {
	if e.f.shape == tabular {
		objects := make([]kind.Object, len(l.Items))
		for i, it := range l.Items {
			objects[i] = e.seen(it.Object)
		}
		return e.raw(buf, e.table(objects, l.Meta, true))
	}
	listKind, apiVersion := e.def.Kind+"List", e.def.GroupVersion().String()
	item := e.seen
	if e.f.shape == partial {
		listKind, apiVersion = "PartialObjectMetadataList", e.metaVersion()
		item = func(o kind.Object) kind.Object { return e.partialOf(e.seen(o)) }
	}
	if e.f.media == codec.Proto {
		return protoList(buf, apiVersion, listKind, l, item)
	}
	start := buf.Len()
	if err := jsonList(buf, apiVersion, listKind, l, item); err != nil {
		return err
	}
	switch {
	case e.f.media == codec.YAML:
		text, err := yaml.JSONToYAML(buf.Bytes()[start:])
		if err != nil {
			return err
		}
		buf.Truncate(start)
		buf.Write(text)
	case e.f.pretty:
		text := bytes.Clone(buf.Bytes()[start:])
		buf.Truncate(start)
		return json.Indent(buf, text, "", "  ")
	}
	return nil
}

func jsonList(buf *bytes.Buffer, apiVersion, listKind string, l *List, item func(kind.Object) kind.Object) error {
	meta, err := json.Marshal(l.Meta)
	if err != nil {
		return err
	}
	fmt.Fprintf(buf, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, listKind, apiVersion, meta)
	enc := json.NewEncoder(buf)
	for i, it := range l.Items {
		if i > 0 {
			buf.WriteByte(',')
		}
		o := item(it.Object)
		at := buf.Len()
		if err := enc.Encode(o); err != nil {
			return err
		}
		buf.Truncate(buf.Len() - 1) // the line break of the encoder
		if _, keepType := o.(*metav1.PartialObjectMetadata); !keepType {
			dropType(buf, at)
		}
	}
	buf.WriteString("]}\n")
	return nil
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

// protoList writes a list message in its envelope: metadata is field 1 and items are field 2 of every list. Sizes are
// known beforehand, so every byte is written once, to its place.
func protoList(buf *bytes.Buffer, apiVersion, listKind string, l *List, item func(kind.Object) kind.Object) error {
	parts := make([]protoMessage, 0, len(l.Items)+1)
	parts = append(parts, &l.Meta)
	for _, it := range l.Items {
		m, ok := item(it.Object).(protoMessage)
		if !ok {
			return fmt.Errorf("%s has no protobuf form", listKind)
		}
		parts = append(parts, m)
	}
	raw := 0
	for _, m := range parts {
		n := m.Size()
		raw += 1 + varintLen(n) + n
	}
	typeMeta := &runtime.TypeMeta{APIVersion: apiVersion, Kind: listKind}
	buf.Grow(raw + 64 + len(apiVersion) + len(listKind))
	buf.WriteString("k8s\x00")
	if err := protoField(buf, 1, typeMeta); err != nil {
		return err
	}
	protoHead(buf, 2, raw)
	for i, m := range parts {
		if err := protoField(buf, byte(min(i+1, 2)), m); err != nil {
			return err
		}
	}
	protoHead(buf, 3, 0) // no content encoding
	protoHead(buf, 4, 0) // no content type
	return nil
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
	if m, ok := o.(interface{ GetObjectMeta() metav1.Object }); ok {
		if full, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			p.ObjectMeta = *full
		}
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
	mark := func(kind.Object, []any) {}
	if e.def.InList != nil {
		mark = e.def.InList(objects)
	}
	for _, o := range objects {
		row := metav1.TableRow{Cells: e.def.Row(o)}
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
		t.Rows = append(t.Rows, row)
	}
	return t
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
