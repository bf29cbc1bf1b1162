package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLargeCollectionIsNotReturned deletes collections: the answer has the objects of an ordinary one, as upstream's has, and of one
// that is larger than an answer should be only that they are deleted.
func TestLargeCollectionIsNotReturned(t *testing.T) {
	t.Parallel()
	r := newMemoryRig(t, 100)
	for _, c := range []struct {
		count int
		kind  string
	}{{3, "ConfigMapList"}, {17, "Status"}} {
		for i := range c.count {
			o := configMap(fmt.Sprint("m", i))
			o.Data = map[string]string{"x": strings.Repeat("x", 1<<20)}
			r.create(configMapsResource(), o)
		}
		w := httptest.NewRecorder()
		r.send(w, "alice", "DELETE", configMapsPath, nil)
		var got struct {
			metav1.TypeMeta
			Status  any
			Items   []metav1.PartialObjectMetadata
			Details metav1.StatusDetails
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Kind != c.kind {
			t.Errorf("%d objects: %d %s, %v", c.count, w.Code, got.Kind, err)
		}
		if got.Kind == "Status" && (got.Status != "Success" || got.Details.Kind != "configmaps") ||
			got.Kind != "Status" && len(got.Items) != c.count {
			t.Errorf("%d objects: %v, %+v, %d items", c.count, got.Status, got.Details, len(got.Items))
		}
		w = httptest.NewRecorder()
		r.send(w, "alice", "GET", configMapsPath, nil)
		if got.Items = nil; json.Unmarshal(w.Body.Bytes(), &got) != nil || len(got.Items) != 0 {
			t.Errorf("%d objects are left", len(got.Items))
		}
	}
}
