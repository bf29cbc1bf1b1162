package apireader

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWatch checks that a watch of one object gives its events, ends when the caller or the server ends it, and returns what the server
// refuses or sends as an error.
func TestWatch(t *testing.T) {
	answer, code := "", http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/api/v1/namespaces/shop/pods" || q.Get("watch") != "true" ||
			q.Get("fieldSelector") != "metadata.name=web" || r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("the request is %s %v", r.URL, r.Header)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	r := &Reader{server: s.URL, authorization: "Bearer x", http: s.Client(),
		resources: []Resource{{Version: "v1", Kind: "Pod", Plural: "pods", Namespaced: true}}}
	watch := func(limit int) (seen string, err error) {
		err = r.Watch(t.Context(), schema.GroupResource{Resource: "pods"}, "shop", "web", func(ev Event) bool {
			seen += ev.Type + string(ev.Object) + " "
			return strings.Count(seen, " ") < limit
		})
		return seen, err
	}
	answer = `{"type":"ADDED","object":{"a":1}}` + "\n" + `{"type":"MODIFIED","object":{"a":2}}` + "\n"
	if seen, err := watch(10); seen != `ADDED{"a":1} MODIFIED{"a":2} ` || err != nil {
		t.Errorf("%s, %v", seen, err)
	}
	if seen, err := watch(1); seen != `ADDED{"a":1} ` || err != nil {
		t.Errorf("%s, %v", seen, err)
	}
	answer += `{"type":"ERROR","object":{"kind":"Status","reason":"Forbidden","code":403,"message":"no"}}` + "\n"
	if seen, err := watch(10); strings.Count(seen, " ") != 2 || !apierrors.IsForbidden(err) {
		t.Errorf("%s, %v", seen, err)
	}
	answer = "nonsense\n"
	if _, err := watch(10); err == nil || !strings.Contains(err.Error(), "read an event") {
		t.Error(err)
	}
	answer, code = `{"kind":"Status","reason":"Expired","code":410}`, http.StatusGone
	if _, err := watch(10); !apierrors.IsResourceExpired(err) {
		t.Error(err)
	}
}
