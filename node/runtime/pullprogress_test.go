package runtime

import (
	"testing"
	"time"
)

func TestManifestOfPull(t *testing.T) {
	began := time.Unix(100, 0)
	config := blob{digest: "config"}
	one, two := blob{digest: "one", layers: []string{"a", "b"}}, blob{digest: "two", layers: []string{"b", "c"}}
	for _, c := range []struct {
		name    string
		blobs   []blob
		ingests []ingest
		want    string
	}{
		{"its layer is being downloaded", []blob{config, one, two}, []ingest{{"a", 5, began.Add(1)}}, "one"},
		{"a layer of two manifests is", []blob{one, two}, []ingest{{"b", 5, began.Add(1)}}, ""},
		{"layers of both are", []blob{one, two}, []ingest{{"a", 5, began.Add(1)}, {"c", 5, began.Add(1)}}, ""},
		{"an earlier pull was interrupted", []blob{one, two}, []ingest{{"a", 5, began.Add(-1)}, {"c", 5, began}}, "two"},
		{"its manifest is not here", []blob{config}, []ingest{{"a", 5, began.Add(1)}}, ""},
		{"nothing is being downloaded", []blob{one}, nil, ""},
	} {
		if got, known := manifestOf(c.blobs, c.ingests, began); got != c.want || known != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, got, known)
		}
	}
}

func TestSumLayers(t *testing.T) {
	layers := []descriptor{{Digest: "a", Size: 10}, {Digest: "b", Size: 20}, {Digest: "c", Size: 30}, {Digest: "b", Size: 20}}
	for _, c := range []struct {
		name        string
		ingests     []ingest
		present     []blob
		done, total int64
	}{
		{"nothing is here", nil, nil, 0, 0},
		{"the first is downloaded", []ingest{{digest: "a", offset: 4}}, nil, 4, 60},
		{"the second is unpacked already", []ingest{{digest: "c", offset: 4}}, nil, 4, 50},
		{"the first is complete", []ingest{{digest: "b", offset: 4}}, []blob{{digest: "a"}}, 14, 60},
		{"the last is complete, the first is not begun", []ingest{{digest: "b", offset: 40}}, []blob{{digest: "c"}}, 50, 50},
		{"all are complete", nil, []blob{{digest: "a"}, {digest: "b"}, {digest: "c"}}, 60, 60},
	} {
		if done, total := sumLayers(layers, c.ingests, c.present); done != c.done || total != c.total {
			t.Errorf("%s: %d of %d, want %d of %d", c.name, done, total, c.done, c.total)
		}
	}
}
