package server

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
)

// sequence is a document with a long list in it: the items of a collection, or the rows of a table. It is written item by item,
// and what is written is what would have been of the document as a whole.
type sequence struct {
	shell []byte // the document as JSON, with an empty list as its last field
	field string // the name of that field
	items int
	// item appends an item as JSON.
	item func(buf *bytes.Buffer, i int) error
	// spill is called after every item and may take what is in the buffer; nil for never.
	spill func() error
}

// sequence writes a document with a list.
func (e *encoder) sequence(buf *bytes.Buffer, s *sequence) error {
	switch {
	case e.f.media == codec.YAML:
		return s.yaml(buf)
	case e.f.pretty:
		return s.pretty(buf)
	}
	return s.json(buf)
}

func (s *sequence) spilled() error {
	if s.spill == nil {
		return nil
	}
	return s.spill()
}

// json writes compact JSON.
func (s *sequence) json(buf *bytes.Buffer) error {
	at := bytes.LastIndex(s.shell, []byte("[]")) + 1
	buf.Write(s.shell[:at])
	for i := range s.items {
		if i > 0 {
			buf.WriteByte(',')
		}
		if err := s.item(buf, i); err != nil {
			return err
		}
		if err := s.spilled(); err != nil {
			return err
		}
	}
	buf.Write(s.shell[at:])
	return nil
}

// pretty writes JSON for the eyes of a person.
func (s *sequence) pretty(buf *bytes.Buffer) error {
	var shell, item bytes.Buffer
	if err := json.Indent(&shell, s.shell, "", "  "); err != nil {
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
		if err := s.spilled(); err != nil {
			return err
		}
	}
	if s.items > 0 {
		buf.WriteString("\n  ")
	}
	buf.Write(text[at:])
	return nil
}

// yaml writes YAML, whose fields are in the order of their names.
func (s *sequence) yaml(buf *bytes.Buffer) error {
	shell, err := yaml.JSONToYAML(s.shell)
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
		if err := s.spilled(); err != nil {
			return err
		}
	}
	buf.Write(shell[at+len(empty):])
	return nil
}

// collection is the list of objects of a kind.
func (e *encoder) collection(apiVersion, listKind string, l *List, item func(kind.Object) kind.Object) (*sequence, error) {
	meta, err := json.Marshal(l.Meta)
	if err != nil {
		return nil, err
	}
	return &sequence{
		shell: fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[]}`+"\n", listKind, apiVersion, meta),
		field: "items", items: len(l.Items),
		item: func(buf *bytes.Buffer, i int) error {
			entry := l.Items[i]
			stored := entry.Object()
			if text, found := e.encoded(entry.Key, stored); found {
				buf.Write(text)
				l.written(i)
				return nil
			}
			o := item(stored)
			if u, ok := o.(*unstructured.Unstructured); ok {
				text, err := codec.AppendUntyped(buf.AvailableBuffer(), u.Object)
				if err == nil {
					e.keep(entry.Key, stored, text)
				}
				buf.Write(text)
				l.written(i)
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
			l.written(i)
			return nil
		},
	}, nil
}

// tableOf is the table of a list: its head, and a row for each object.
func (e *encoder) tableOf(l *List) (*sequence, error) {
	// The mark of a row may depend on all objects; otherwise they are shown one at a time.
	var objects []kind.Object
	if e.def.InList != nil {
		objects = make([]kind.Object, len(l.Items))
		for i, it := range l.Items {
			objects[i] = e.seen(it.Object())
		}
	}
	head := e.table(nil, l.Meta, true)
	var shell bytes.Buffer
	if err := json.NewEncoder(&shell).Encode(head); err != nil {
		return nil, err
	}
	if e.f.pretty { // as json.MarshalIndent, which ends with no line break
		shell.Truncate(shell.Len() - 1)
	}
	mark := e.marks(objects)
	return &sequence{
		shell: shell.Bytes(), field: "rows", items: len(l.Items),
		item: func(buf *bytes.Buffer, i int) error {
			var o kind.Object
			if objects != nil {
				o = objects[i]
			} else {
				o = e.seen(l.Items[i].Object())
			}
			if err := json.NewEncoder(buf).Encode(e.row(o, mark)); err != nil {
				return err
			}
			buf.Truncate(buf.Len() - 1)
			l.written(i)
			return nil
		},
	}, nil
}

// protoList writes a list message in its envelope: metadata is field 1 and items are field 2 of every list. Sizes are
// known beforehand, so every byte is written once, to its place.
func protoList(buf *bytes.Buffer, typeMeta *runtime.TypeMeta, l *List, item func(kind.Object) kind.Object, spill func() error) error {
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
	buf.Grow(min(raw, piece) + 64 + len(typeMeta.APIVersion) + len(typeMeta.Kind))
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
			l.written(i)
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

// protoLen is how many bytes a message takes as a field of another one.
func protoLen(m protoMessage) int {
	n := m.Size()
	return 1 + varintLen(n) + n
}
