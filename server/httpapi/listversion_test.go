package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestListAtResourceVersion checks every combination of resourceVersion, resourceVersionMatch, limit and continue of a list
// in the table of https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list. The result "old"
// is the state at the requested resource version, "new" the current one, and a number the code of an error.
func TestListAtResourceVersion(t *testing.T) {
	r := newMemoryRig(t, 100)
	list := func(query string) (text string, l corev1.ConfigMapList) {
		t.Helper()
		w := newStallingWriter(-1)
		r.send(w, "alice", http.MethodGet, configMapsPath+"?"+query, nil)
		if w.code != http.StatusOK {
			return strconv.Itoa(w.code), l
		}
		if err := json.Unmarshal(w.got.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Items {
			text += m.Name + "=" + m.Data["v"] + " "
		}
		return text, l
	}
	put := func(name, value string) {
		t.Helper()
		m := configMap(name)
		m.Data = map[string]string{"v": value}
		r.create(configMapsResource(), m)
	}
	put("a", "1")
	put("b", "1")
	put("d", "1")
	_, l := list("")
	old := l.ResourceVersion
	_, first := list("limit=1")
	token := url.QueryEscape(first.Continue)
	put("a0", "2")
	_, l = list("")
	current := l.ResourceVersion
	const all, oldFirst, newFirst, oldRest = "a=1 a0=2 b=1 d=1 ", "a=1 b=1 ", "a=1 a0=2 ", "b=1 d=1 "
	at := "resourceVersion=" + old
	for _, c := range []struct{ query, want, version string }{
		// Without resourceVersionMatch.
		{"", all, current},
		{"resourceVersion=0", all, current},
		{at, all, current}, // not older than
		{"limit=2", newFirst, current},
		{"limit=2&resourceVersion=0", all, current}, // any state, as a whole list
		{"limit=2&" + at, oldFirst, old},            // exactly
		{"limit=9&" + at, "a=1 b=1 d=1 ", old},
		{"limit=9&continue=" + token, oldRest, old},
		{"continue=" + token, oldRest, old},
		{"limit=9&resourceVersion=0&continue=" + token, oldRest, old},
		{"limit=9&" + at + "&continue=" + token, "400", ""},
		// Exact.
		{"resourceVersionMatch=Exact", "422", ""},
		{"resourceVersionMatch=Exact&resourceVersion=0", "422", ""},
		{"resourceVersionMatch=Exact&" + at, "a=1 b=1 d=1 ", old},
		{"limit=2&resourceVersionMatch=Exact", "422", ""},
		{"limit=2&resourceVersionMatch=Exact&resourceVersion=0", "422", ""},
		{"limit=2&resourceVersionMatch=Exact&" + at, oldFirst, old},
		{"limit=2&resourceVersionMatch=Exact&" + at + "&continue=" + token, "422", ""},
		// NotOlderThan.
		{"resourceVersionMatch=NotOlderThan", "422", ""},
		{"resourceVersionMatch=NotOlderThan&resourceVersion=0", all, current},
		{"resourceVersionMatch=NotOlderThan&" + at, all, current},
		{"limit=2&resourceVersionMatch=NotOlderThan", "422", ""},
		{"limit=2&resourceVersionMatch=NotOlderThan&resourceVersion=0", all, current},
		{"limit=2&resourceVersionMatch=NotOlderThan&" + at, newFirst, current},
		{"limit=2&resourceVersionMatch=NotOlderThan&" + at + "&continue=" + token, "422", ""},
		// Lists with a name, which have at most one object.
		{"limit=2&" + at + "&fieldSelector=metadata.name%3Da0", "", old},
		{at + "&fieldSelector=metadata.name%3Da0", "a0=2 ", current},
		// Invalid resource versions.
		{"limit=2&resourceVersion=x", "400", ""},
		{"resourceVersion=x", "400", ""},
	} {
		got, l := list(c.query)
		if got != c.want || l.ResourceVersion != c.version {
			t.Errorf("?%s\ngot  %s at %s\nwant %s at %s", c.query, got, l.ResourceVersion, c.want, c.version)
		}
	}
	// All pages of an old state are of that state, and have the number of remaining items.
	_, l = list("limit=1&" + at)
	if l.RemainingItemCount == nil || *l.RemainingItemCount != 2 {
		t.Errorf("of an old state %v remain, want 2", l.RemainingItemCount)
	}
	if rest, l := list("continue=" + url.QueryEscape(l.Continue)); rest != oldRest || l.ResourceVersion != old {
		t.Errorf("the next page of an old state is %s at %s", rest, l.ResourceVersion)
	}
	future := fmt.Sprintf("limit=1&resourceVersion=%s000", current)
	if got, _ := list(future); got != "504" {
		t.Errorf("of the future: %s", got)
	}
}
