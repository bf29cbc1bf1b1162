package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kv"
	"proa.dev/server/memorybudget"
	"proa.dev/server/responsewriter"
	"proa.dev/server/state"
)

// countingStore is a store that records the largest page that was read from it.
type countingStore struct {
	state.Store
	largestPage int
}

func (s *countingStore) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	page, err := s.Store.List(ctx, r)
	s.largestPage = max(s.largestPage, len(page.Pairs))
	return page, err
}

// TestPastObjectsAreReadInParts checks that with any limit, a bounded number of objects is read from the store before their memory is
// counted. A page may be shorter than its limit, never longer, and all pages together are the collection.
func TestPastObjectsAreReadInParts(t *testing.T) {
	const part, cost = 100, 6 // how many objects are read at a time, and how many bytes of memory each of their bytes counts for
	r := newMemoryRig(t, 100)
	const all = 250
	r.createConfigMaps(all, 4<<10)
	cache := r.State.Cache(r.State.Def(configMapsResource()))
	if err := cache.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	counted := &countingStore{Store: r.State.Store}
	r.State.Store = counted
	get := func(query string) (l corev1.ConfigMapList, code int) {
		t.Helper()
		w := newStallingWriter(-1)
		r.send(w, "alice", "GET", configMapsPath+"?"+query, nil)
		if w.code == http.StatusOK {
			if err := json.Unmarshal(w.got.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
		}
		return l, w.code
	}
	exact := fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", cache.Rev())
	for _, query := range []string{exact, exact + "&limit=100000"} {
		if l, code := get(query); code != http.StatusOK || len(l.Items) != all || l.Continue != "" {
			t.Errorf("%s: %d, %d items, %q", query, code, len(l.Items), l.Continue)
		}
	}
	pages := func(selector string, maximum int) (items int) {
		for query := fmt.Sprintf("%s&limit=%d%s", exact, maximum, selector); query != ""; {
			l, code := get(query)
			if code != http.StatusOK || len(l.Items) > maximum {
				t.Fatalf("%s: %d, %d items", query, code, len(l.Items))
			}
			if items += len(l.Items); l.Continue != "" && l.RemainingItemCount != nil && *l.RemainingItemCount != int64(all-items) {
				t.Errorf("%s: %d remain after %d", query, *l.RemainingItemCount, items)
			}
			query = ""
			if l.Continue != "" {
				query = fmt.Sprintf("limit=%d&continue=%s%s", maximum, url.QueryEscape(l.Continue), selector)
			}
		}
		return items
	}
	for _, maximum := range []int{1, 7, 99, 100, 101, 249} {
		if n := pages("", maximum); n != all {
			t.Errorf("pages of %d have %d items", maximum, n)
		}
	}
	if n := pages("&fieldSelector="+url.QueryEscape("metadata.name!=m0005,metadata.name!=m0123"), 7); n != all-2 {
		t.Errorf("pages of a selection have %d items", n)
	}
	if counted.largestPage > part {
		t.Errorf("%d objects were read at once", counted.largestPage)
	}
	// A user who may not hold the whole page in memory gets a part of it.
	r.memory.answers = memorybudget.New(4 * (2*responsewriter.PieceSize + cost*part*5<<10))
	held, _ := r.memory.answers.Force("alice", responsewriter.PieceSize)
	if l, code := get(exact + "&limit=240"); code != http.StatusOK || len(l.Items) != part || l.Continue == "" {
		t.Errorf("beyond its share: %d, %d items, %q", code, len(l.Items), l.Continue)
	}
	held.Release()
}
