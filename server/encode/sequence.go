package encode

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server/collection"
)

// itemSequence is a document with a long list in it: the items of a collection, or the rows of a table. It is written
// item by item, with the same bytes as if it were encoded as a whole.
type itemSequence struct {
	document []byte // the document as JSON, with an empty list as its last field
	field    string // the name of that field
	items    int
	// item appends an item as JSON.
	item func(buf *bytes.Buffer, i int) error
	// spill, if not nil, is called after every item and may empty the buffer.
	spill func() error
}

// writeSequence writes a document in the media type of the format.
func (e *Encoder) writeSequence(buf *bytes.Buffer, s *itemSequence) error {
	switch {
	case e.Format.Media == codec.YAML:
		return s.yaml(buf)
	case e.Format.Pretty:
		return s.pretty(buf)
	}
	return s.json(buf)
}

// afterItem calls spill.
func (s *itemSequence) afterItem() error {
	if s.spill == nil {
		return nil
	}
	return s.spill()
}

// json writes compact JSON.
func (s *itemSequence) json(buf *bytes.Buffer) error {
	at := bytes.LastIndex(s.document, []byte("[]")) + 1
	buf.Write(s.document[:at])
	for i := range s.items {
		if i > 0 {
			buf.WriteByte(',')
		}
		if err := s.item(buf, i); err != nil {
			return err
		}
		if err := s.afterItem(); err != nil {
			return err
		}
	}
	buf.Write(s.document[at:])
	return nil
}

// pretty writes indented JSON.
func (s *itemSequence) pretty(buf *bytes.Buffer) error {
	var shell, item bytes.Buffer
	if err := json.Indent(&shell, s.document, "", "  "); err != nil {
		return err
	}
	text := shell.Bytes()
	at := bytes.LastIndex(text, []byte("[]")) + 1
	buf.Write(text[:at])
	for i := range s.items {
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.WriteString("\n    ")
		item.Reset()
		if err := s.item(&item, i); err != nil {
			return err
		}
		if err := json.Indent(buf, item.Bytes(), "    ", "  "); err != nil {
			return err
		}
		if err := s.afterItem(); err != nil {
			return err
		}
	}
	if s.items > 0 {
		buf.WriteString("\n  ")
	}
	buf.Write(text[at:])
	return nil
}

// yaml writes YAML, whose fields are sorted by name.
func (s *itemSequence) yaml(buf *bytes.Buffer) error {
	shell, err := yaml.JSONToYAML(s.document)
	if err != nil {
		return err
	}
	empty := []byte("\n" + s.field + ": []\n")
	at := bytes.Index(shell, empty)
	if s.items == 0 || at < 0 {
		buf.Write(shell)
		return nil
	}
	buf.Write(shell[:at+1])
	buf.WriteString(s.field + ":\n")
	var item bytes.Buffer
	head := []byte(s.field + ":\n")
	for i := range s.items {
		item.Reset()
		fmt.Fprintf(&item, `{%q:[`, s.field)
		if err := s.item(&item, i); err != nil {
			return err
		}
		item.WriteString("]}")
		text, err := yaml.JSONToYAML(item.Bytes())
		if err != nil {
			return err
		}
		buf.Write(bytes.TrimPrefix(text, head))
		if err := s.afterItem(); err != nil {
			return err
		}
	}
	buf.Write(shell[at+len(empty):])
	return nil
}

// collection returns the document of a list. item converts a stored object into what is written.
func (e *Encoder) collection(apiVersion, listKind string, l *collection.List, item func(kind.Object) kind.Object) (*itemSequence, error) {
	meta, err := json.Marshal(l.Meta)
	if err != nil {
		return nil, err
	}
	return &itemSequence{
		document: fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[]}`+"\n", listKind, apiVersion, meta),
		field:    "items", items: len(l.Items),
		item: func(buf *bytes.Buffer, i int) error {
			entry := l.Items[i]
			stored := entry.Object()
			if text, found := e.cached(entry.Key, stored); found {
				buf.Write(text)
				l.Release(i)
				return nil
			}
			o := item(stored)
			if u, ok := o.(*unstructured.Unstructured); ok {
				text, err := codec.AppendUntyped(buf.AvailableBuffer(), u.Object)
				if err == nil {
					e.cacheEncoding(entry.Key, stored, text)
				}
				buf.Write(text)
				l.Release(i)
				return err
			}
			at := buf.Len()
			if err := json.NewEncoder(buf).Encode(o); err != nil {
				return err
			}
			buf.Truncate(buf.Len() - 1) // the line break of the encoder
			if _, keepType := o.(*metav1.PartialObjectMetadata); !keepType {
				dropType(buf, at)
			}
			l.Release(i)
			return nil
		},
	}, nil
}

// tableOf returns the document of a Table with a row for each object of a list.
func (e *Encoder) tableOf(l *collection.List) (*itemSequence, error) {
	// The cells of a row may depend on all objects of the list; otherwise objects are converted one at a time.
	var objects []kind.Object
	if e.Def.InList != nil {
		objects = make([]kind.Object, len(l.Items))
		for i, it := range l.Items {
			objects[i] = e.convert(it.Object())
		}
	}
	head := e.table(nil, l.Meta, true)
	var shell bytes.Buffer
	if err := json.NewEncoder(&shell).Encode(head); err != nil {
		return nil, err
	}
	if e.Format.Pretty { // as json.MarshalIndent, which ends with no line break
		shell.Truncate(shell.Len() - 1)
	}
	mark := e.marks(objects)
	return &itemSequence{
		document: shell.Bytes(), field: "rows", items: len(l.Items),
		item: func(buf *bytes.Buffer, i int) error {
			var o kind.Object
			if objects != nil {
				o = objects[i]
			} else {
				o = e.convert(l.Items[i].Object())
			}
			if err := json.NewEncoder(buf).Encode(e.row(o, mark)); err != nil {
				return err
			}
			buf.Truncate(buf.Len() - 1)
			l.Release(i)
			return nil
		},
	}, nil
}

// maxGrow bounds how much a buffer is grown ahead for a list, which may be sent in pieces.
const maxGrow = 128 << 10

// protoList writes a list as protobuf in the envelope of Kubernetes: metadata is field 1 and items are field 2 of every
// list. Sizes are computed first, so that every byte is written once.
func protoList(buf *bytes.Buffer, typeMeta *runtime.TypeMeta, l *collection.List, item func(kind.Object) kind.Object,
	spill func() error) error {
	message := func(i int) (protoMessage, error) {
		m, ok := item(l.Items[i].Object()).(protoMessage)
		if !ok {
			return nil, fmt.Errorf("%s has no protobuf form", typeMeta.Kind)
		}
		return m, nil
	}
	raw := protoLen(&l.Meta)
	for i := range l.Items {
		m, err := message(i)
		if err != nil {
			return err
		}
		raw += protoLen(m)
	}
	buf.Grow(min(raw, maxGrow) + 64 + len(typeMeta.APIVersion) + len(typeMeta.Kind))
	buf.WriteString("k8s\x00")
	if err := protoField(buf, 1, typeMeta); err != nil {
		return err
	}
	protoHead(buf, 2, raw)
	if err := protoField(buf, 1, &l.Meta); err != nil {
		return err
	}
	for i := range l.Items {
		m, err := message(i)
		if err == nil {
			err = protoField(buf, 2, m)
			l.Release(i)
		}
		if err == nil && spill != nil {
			err = spill()
		}
		if err != nil {
			return err
		}
	}
	protoHead(buf, 3, 0) // no content encoding
	protoHead(buf, 4, 0) // no content type
	return nil
}

// protoLen returns how many bytes a message takes as a field of another one.
func protoLen(m protoMessage) int {
	n := m.Size()
	return 1 + varintLen(n) + n
}
