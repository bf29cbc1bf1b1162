package encode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server/collection"
	"proa.dev/watch"
)

// codecAndDef returns the codec of all kinds, and the descriptor of one of them.
func codecAndDef(t *testing.T, kindName string) (*codec.Codec, *kind.Def) {
	t.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range kinds.All() {
		if d.Kind == kindName {
			return codec.New(scheme), d
		}
	}
	t.Fatalf("there is no kind %s", kindName)
	return nil, nil
}

// TestListsEqualCodecOutput checks that a list that is written item by item has the same bytes as the codec's encoding of
// the typed list.
func TestListsEqualCodecOutput(t *testing.T) {
	all, def := codecAndDef(t, "ConfigMap")
	for _, n := range []int{0, 1, 3, 200} {
		typed := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "x", RemainingItemCount: new(int64(9))}, Items: []corev1.ConfigMap{}}
		l := &collection.List{Meta: typed.ListMeta}
		for i := range n {
			c := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i),
				Labels: map[string]string{"metadata": "\"metadata\":"}}, Data: map[string]string{"k": strings.Repeat("<&>", i)}}
			typed.Items = append(typed.Items, c)
			c.SetGroupVersionKind(def.GroupVersionKind)
			l.Items = append(l.Items, watch.NewEntry("", &c, 0))
		}
		for _, m := range []codec.Media{codec.JSON, codec.Proto} {
			var got, want bytes.Buffer
			e := &Encoder{Codec: all, Def: def, Format: Format{Media: m}}
			if err := e.list(&got, l, nil); err != nil {
				t.Fatal(err)
			}
			if err := all.Append(&want, m, typed); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%d items as %s: got %.300q, want %.300q", n, m.ContentType(), got.Bytes(), want.Bytes())
			}
		}
	}
}

// TestEvents checks that a watch event is one JSON document on a line, or a protobuf message after its length.
func TestEvents(t *testing.T) {
	all, pods := codecAndDef(t, "Pod")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "3"}}
	pod.SetGroupVersionKind(pods.GroupVersionKind)
	e := &Encoder{Codec: all, Def: pods, Format: Format{Media: codec.JSON}}
	b, err := e.Event(watch.Modified, pod, false)
	if err != nil {
		t.Fatal(err)
	}
	var ev struct {
		Type   string
		Object corev1.Pod
	}
	if err := json.Unmarshal(b, &ev); err != nil || ev.Type != "MODIFIED" || ev.Object.Name != "p" || bytes.Count(b, []byte("\n")) != 1 {
		t.Errorf("frame %q: %v", b, err)
	}
	e.Format.Media = codec.Proto
	if b, err = e.Event(watch.Deleted, pod, false); err != nil {
		t.Fatal(err)
	}
	if n := int(b[2])<<8 | int(b[3]); n != len(b)-4 {
		t.Errorf("a frame of %d bytes has the length %d", len(b)-4, n)
	}
	var raw metav1.WatchEvent
	if err := raw.Unmarshal(b[4:]); err != nil || raw.Type != "DELETED" || !bytes.HasPrefix(raw.Object.Raw, []byte("k8s\x00")) {
		t.Errorf("frame %q: %v", b, err)
	}
}

// TestCellsOfComputedKindsArePrintable checks that a Table of a computed kind, such as traces and explanations, has nothing in its cells
// that manipulates a terminal, in lists and in watches, and that Tables of stored kinds are left as they are.
func TestCellsOfComputedKindsArePrintable(t *testing.T) {
	all, stored := codecAndDef(t, "ConfigMap")
	const hostile = "\u009b2J\x1b]0;x\a\u202e"
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: hostile}}
	object.SetGroupVersionKind(stored.GroupVersionKind)
	for _, isComputed := range []bool{true, false} {
		def := *stored
		if isComputed {
			def.Computed = func(context.Context, kind.Server, kind.Selection) ([]kind.Object, error) { return nil, nil }
		}
		e := &Encoder{Codec: all, Def: &def, Format: Format{Media: codec.JSON, Shape: Table, Include: metav1.IncludeNone}}
		event, err := e.Event(watch.Added, object, true)
		if err != nil {
			t.Fatal(err)
		}
		var inEvent struct{ Object metav1.Table }
		var inList metav1.Table
		list := wholeList(t, e, &collection.List{Items: []*watch.Entry{watch.NewEntry("", object, 0)}})
		if err := errors.Join(json.Unmarshal(event, &inEvent), json.Unmarshal(list, &inList)); err != nil {
			t.Fatal(err)
		}
		want := hostile
		if isComputed {
			want = `\u009b2J\x1b]0;x\a\u202e`
		}
		for _, table := range []metav1.Table{inEvent.Object, inList} {
			if got := table.Rows[0].Cells[0]; got != want {
				t.Errorf("computed %v: the cell is %q, want %q", isComputed, got, want)
			}
		}
	}
}

// wholeList encodes a list as a whole, not in pieces.
func wholeList(t *testing.T, e *Encoder, l *collection.List) []byte {
	t.Helper()
	var buf bytes.Buffer
	objects := make([]kind.Object, len(l.Items))
	for i, it := range l.Items {
		objects[i] = e.convert(it.Object())
	}
	if e.Format.Shape == Table {
		if err := e.Raw(&buf, e.table(objects, l.Meta, true)); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	plain := *e
	plain.Format.Media, plain.Format.Pretty = codec.JSON, false
	if err := plain.list(&buf, l, nil); err != nil {
		t.Fatal(err)
	}
	switch {
	case e.Format.Media == codec.YAML:
		text, err := yaml.JSONToYAML(buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return text
	case e.Format.Pretty:
		var text bytes.Buffer
		if err := json.Indent(&text, buf.Bytes(), "", "  "); err != nil {
			t.Fatal(err)
		}
		return text.Bytes()
	}
	return buf.Bytes()
}

// TestPiecesEqualWholeList checks that a list that is taken from the buffer item by item has the same bytes as the whole list.
func TestPiecesEqualWholeList(t *testing.T) {
	all, pods := codecAndDef(t, "Pod")
	unusual := []string{"plain", "a\nb\n", " x: |\n  - [y]\n\n", "items: []\n", "it's \"<&>\" ☃\u2028", strings.Repeat("long ", 100), "",
		"true", "0x1f", "\"rows\":[]}"}
	for _, n := range []int{0, 1, 2, 50} {
		l := &collection.List{Meta: metav1.ListMeta{ResourceVersion: "7", Continue: "x: []", RemainingItemCount: new(int64(9))}}
		for i := range n {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: "ns",
				Annotations: map[string]string{"a": unusual[i%len(unusual)], unusual[(i+1)%len(unusual)]: ""}}}
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: unusual[(i+3)%len(unusual)],
				Args: []string{unusual[(i+5)%len(unusual)]}}, {}}
			p.SetGroupVersionKind(pods.GroupVersionKind)
			l.Items = append(l.Items, watch.NewEntry("", p, 0))
		}
		for _, f := range []Format{
			{Media: codec.JSON}, {Media: codec.JSON, Pretty: true}, {Media: codec.YAML}, {Media: codec.YAML, Pretty: true},
			{Media: codec.JSON, Shape: MetadataOnly}, {Media: codec.JSON, Shape: MetadataOnly, Pretty: true},
			{Media: codec.YAML, Shape: MetadataOnly},
			{Media: codec.JSON, Shape: Table}, {Media: codec.JSON, Shape: Table, Pretty: true}, {Media: codec.YAML, Shape: Table},
			{Media: codec.JSON, Shape: Table, Include: metav1.IncludeObject},
			{Media: codec.YAML, Shape: Table, Include: metav1.IncludeNone},
			{Media: codec.Proto}, {Media: codec.Proto, Shape: MetadataOnly},
		} {
			e := &Encoder{Codec: all, Def: pods, Format: f}
			var buf, got bytes.Buffer
			spill := func() error {
				_, err := buf.WriteTo(&got)
				return err
			}
			if err := e.list(&buf, l, spill); err != nil {
				t.Fatal(err)
			}
			_ = spill()
			want := []byte(nil)
			if f.Media == codec.Proto { // TestListsEqualCodecOutput compares whole lists with the codec
				var whole bytes.Buffer
				if err := e.list(&whole, l, nil); err != nil {
					t.Fatal(err)
				}
				want = whole.Bytes()
			} else {
				want = wholeList(t, e, l)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d items as %+v: got\n%.800s\nwant\n%.800s", n, f, got.Bytes(), want)
			}
		}
	}
}
