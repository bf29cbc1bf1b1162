package remote

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// FuzzResponses decodes arbitrary bytes as lists and as watch streams of a server: each is decoded or is an error.
func FuzzResponses(f *testing.F) {
	c, err := New(f.Context(), Config{URL: "https://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	def := c.defs[schema.GroupResource{Resource: "configmaps"}]
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}}
	one.SetGroupVersionKind(def.GroupVersionKind)
	for _, m := range []codec.Media{codec.JSON, codec.Proto} {
		f.Add(byte(m), encodeEvent(f, c, m, one))
	}
	list := corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.ConfigMap{*one}}
	raw, err := list.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	whole, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: raw}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(codec.Proto), append([]byte("k8s\x00"), whole...))
	f.Add(byte(codec.JSON), []byte(`{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}`))
	f.Fuzz(func(t *testing.T, m byte, data []byte) {
		media := codec.JSON
		if codec.Media(m) == codec.Proto {
			media = codec.Proto
		}
		if items, _, err := c.list(data, media, def); err == nil {
			for _, o := range items {
				if o == nil || o.GetObjectKind().GroupVersionKind().Kind != def.Kind {
					t.Errorf("a list has %v", o)
				}
			}
		}
		isStatus(data, media)
		events := c.events(bytes.NewReader(data), def, media)
		for {
			e, err := events.next()
			if err != nil {
				return
			}
			if e.object == nil {
				t.Fatal("an event of nothing")
			}
		}
	})
}

// encodeEvent returns a watch event as a server writes it.
func encodeEvent(f *testing.F, c *Client, m codec.Media, o kind.Object) []byte {
	f.Helper()
	raw, err := c.encode(o, m)
	if err != nil {
		f.Fatal(err)
	}
	if m == codec.JSON {
		return []byte(`{"type":"ADDED","object":` + string(raw) + `}`)
	}
	event, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}
