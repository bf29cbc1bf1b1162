package httpapi

import (
	"bytes"
	"testing"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server"
)

// TestUpdatesWithoutChange checks that an update that changes nothing writes nothing, unless the object would be stored differently now.
func TestUpdatesWithoutChange(t *testing.T) {
	r := newRig(t)
	created := r.create(configMapsResource(), configMap("x"))
	update := func(o kind.Object) string {
		t.Helper()
		out, err := r.Client(r.who).Update(t.Context(), configMapsResource(), o.DeepCopyObject().(kind.Object), "")
		if err != nil {
			t.Fatal(err)
		}
		return out.GetResourceVersion()
	}
	if got := update(created); got != created.GetResourceVersion() {
		t.Errorf("the same again is at %s, was at %s", got, created.GetResourceVersion())
	}

	// The same object, but stored as JSON.
	def := r.State.Def(configMapsResource())
	key := def.Key("ns", "x")
	before, _, err := r.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	plain := created.DeepCopyObject().(kind.Object)
	plain.SetResourceVersion("")
	var text bytes.Buffer
	if err := r.State.Codec.Append(&text, codec.JSON, plain); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Commit(t.Context(), kv.Write{Key: key, Value: text.Bytes(), Rev: before.Rev}); err != nil {
		t.Fatal(err)
	}
	found, err := r.Client(r.who).Get(t.Context(), configMapsResource(), "ns", "x", "")
	if err != nil {
		t.Fatal(err)
	}
	migrated := update(found)
	if migrated == found.GetResourceVersion() {
		t.Error("an object in another encoding was not written again")
	}
	now, _, err := r.store.Get(t.Context(), key)
	if err != nil || !bytes.Equal(now.Value, before.Value) {
		t.Errorf("stored is %q, %v; want it as at first, %q", now.Value, err, before.Value)
	}
	found.SetResourceVersion(migrated)
	if again := update(found); again != migrated {
		t.Errorf("migrated twice: %s and %s", migrated, again)
	}
}

// TestResponsesShareCachedObjects checks that the pipeline answers with the object of the cache, and a caller in this process gets a copy.
func TestResponsesShareCachedObjects(t *testing.T) {
	r := newRig(t)
	cache := r.State.Cache(r.State.Def(configMapsResource()))
	cached := func() kind.Object {
		t.Helper()
		if err := cache.WaitUntilFresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, ok := cache.Get("/registry/configmaps/ns/x")
		if !ok {
			t.Fatal("the cache does not have it")
		}
		return e.Object()
	}
	untouched := func(what string, copied kind.Object) {
		t.Helper()
		copied.SetLabels(map[string]string{"mine": "alone"})
		if now := cached(); now.GetLabels()["mine"] != "" || now.GetResourceVersion() != copied.GetResourceVersion() {
			t.Errorf("after %s the cache has labels %v at %s, want none at %s", what, now.GetLabels(), now.GetResourceVersion(),
				copied.GetResourceVersion())
		}
	}
	if err := cache.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	created := r.create(configMapsResource(), configMap("x"))
	untouched("a create", created)
	created.SetLabels(nil)
	created.SetAnnotations(map[string]string{"a": "b"})
	changed, err := r.Client(r.who).Update(t.Context(), configMapsResource(), created, "")
	if err != nil {
		t.Fatal(err)
	}
	untouched("an update", changed)
	res, err := r.request("update", "configmaps", "ns", "x", func(q *server.Request) { q.Object = configMap("x") })
	if err != nil {
		t.Fatal(err)
	}
	if cached() != res.Object {
		t.Error("the cache has decoded what its writer had in hand")
	}
}
