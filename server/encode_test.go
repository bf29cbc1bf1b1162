package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// A list written item by item is byte for byte what the codec makes of the typed list.
func TestListsAreThoseOfTheCodec(t *testing.T) {
	s, _ := bench(t)
	var def *kind.Def
	for _, d := range s.State.defs.Load().all {
		if d.Kind == "ConfigMap" {
			def = d
		}
	}
	for _, n := range []int{0, 1, 3, 200} {
		typed := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "x", RemainingItemCount: new(int64(9))}, Items: []corev1.ConfigMap{}}
		l := &List{Meta: typed.ListMeta}
		for i := range n {
			c := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: map[string]string{"metadata": "\"metadata\":"}}, Data: map[string]string{"k": strings.Repeat("<&>", i)}}
			typed.Items = append(typed.Items, c)
			c.SetGroupVersionKind(def.GroupVersionKind)
			l.Items = append(l.Items, watch.NewEntry("", &c, 0))
		}
		for _, m := range []codec.Media{codec.JSON, codec.Proto} {
			var got, want bytes.Buffer
			e := &encoder{codec: s.State.Codec, def: def, f: format{media: m}}
			if err := e.list(&got, l, nil); err != nil {
				t.Fatal(err)
			}
			if err := s.State.Codec.Append(&want, m, typed); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%d items as %s: got %.300q, want %.300q", n, m.ContentType(), got.Bytes(), want.Bytes())
			}
		}
	}
}

// A watch frame is one JSON document a line, or a message with its length before it.
func TestFrames(t *testing.T) {
	s, pods := bench(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "3"}}
	pod.SetGroupVersionKind(pods.GroupVersionKind)
	e := &encoder{codec: s.State.Codec, def: pods, f: format{media: codec.JSON}}
	b, err := e.frame(watch.Modified, pod, false)
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
	e.f.media = codec.Proto
	if b, err = e.frame(watch.Deleted, pod, false); err != nil {
		t.Fatal(err)
	}
	if n := int(b[2])<<8 | int(b[3]); n != len(b)-4 {
		t.Errorf("a frame of %d bytes says %d", len(b)-4, n)
	}
	var raw metav1.WatchEvent
	if err := raw.Unmarshal(b[4:]); err != nil || raw.Type != "DELETED" || !bytes.HasPrefix(raw.Object.Raw, []byte("k8s\x00")) {
		t.Errorf("frame %q: %v", b, err)
	}
}
