package watch_test

import (
	"bytes"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

// value returns a ConfigMap with this word as data, encoded and decoded.
func (w *cacheTest) value(name, word string) ([]byte, kind.Object) {
	w.Helper()
	o := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data: map[string]string{"word": word},
	}
	b, err := w.codec.Store(w.def, o)
	if err != nil {
		w.Fatal(err)
	}
	read, err := w.codec.Load(w.def, kv.Pair{Value: b})
	if err != nil {
		w.Fatal(err)
	}
	return b, read
}

// commit stores a value and waits until the cache has it.
func (w *cacheTest) commit(c *watch.Cache, name string, value []byte, rev int64) (int64, kind.Object) {
	w.Helper()
	key := w.def.Key("ns", name)
	at, err := w.store.Commit(w.Context(), kv.Write{Key: key, Value: value, Rev: rev})
	if err != nil {
		w.Fatal(err)
	}
	if err := c.WaitFor(w.Context(), at); err != nil {
		w.Fatal(err)
	}
	e, ok := c.Get(key)
	if !ok || e.Rev != at || e.Object().GetResourceVersion() != strconv.FormatInt(at, 10) {
		w.Fatalf("the cache has %+v, want revision %d", e, at)
	}
	return at, e.Object()
}

func dataOf(o kind.Object) string { return o.(*corev1.ConfigMap).Data["word"] }

// TestOfferIsUsed checks that the cache uses an offered object if and only if the watch delivers its bytes.
func TestOfferIsUsed(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	key := w.def.Key("ns", "a")

	b, obj := w.value("a", "one")
	offer := watch.NewOffer(c, key, bytes.Clone(b), obj)
	first, got := w.commit(c, "a", b, 0)
	if got != obj {
		t.Error("the cache has decoded what was offered")
	}
	if offered, ok := offer.At(first); !ok || offered != obj {
		t.Errorf("the writer got %v, %v", offered, ok)
	}

	// Another client writes other bytes first: they are decoded, and the offer stays open.
	offeredBytes, offeredObject := w.value("a", "ours")
	offer = watch.NewOffer(c, key, offeredBytes, offeredObject)
	otherBytes, _ := w.value("a", "theirs")
	second, got := w.commit(c, "a", otherBytes, first)
	if dataOf(got) != "theirs" {
		t.Errorf("the cache took %q for another's write", dataOf(got))
	}
	third, got := w.commit(c, "a", offeredBytes, second)
	if got != offeredObject {
		t.Error("the offer was lost to a write of other bytes")
	}
	if offered, ok := offer.At(third); !ok || offered.GetResourceVersion() != strconv.FormatInt(third, 10) {
		t.Errorf("the writer got %v, %v", offered, ok)
	}
}

// TestOfferAtAnotherRevision checks that the same bytes written by another client use up the offer, and that At then
// returns false.
func TestOfferAtAnotherRevision(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	b, obj := w.value("a", "same")
	offer := watch.NewOffer(c, w.def.Key("ns", "a"), b, obj)
	first, got := w.commit(c, "a", b, 0)
	if got != obj {
		t.Error("equal bytes were decoded")
	}
	second, again := w.commit(c, "a", b, first)
	if again == obj {
		t.Error("one object stands for two revisions")
	}
	if _, ok := offer.At(second); ok {
		t.Error("the writer got the object of another revision")
	}
	if obj.GetResourceVersion() != strconv.FormatInt(first, 10) {
		t.Errorf("the shared object became %s", obj.GetResourceVersion())
	}
}

// TestOfferWithdrawn checks that a withdrawn offer is not used, even for the same bytes.
func TestOfferWithdrawn(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	b, obj := w.value("a", "x")
	watch.NewOffer(c, w.def.Key("ns", "a"), b, obj).Withdraw()
	if _, got := w.commit(c, "a", b, 0); got == obj {
		t.Error("an offer that was withdrawn was taken")
	}
	// An offer without cache just has an object.
	withoutCache := watch.NewOffer(nil, "k", b, obj)
	if offered, ok := withoutCache.At(7); !ok || offered.GetResourceVersion() != "7" {
		t.Errorf("got %v, %v", offered, ok)
	}
	withoutCache.Withdraw()
}

// TestOffersAreBounded checks that the number of open offers is bounded, and that the cache works without further ones.
func TestOffersAreBounded(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	b, obj := w.value("a", "x")
	for i := range 5000 {
		watch.NewOffer(c, strconv.Itoa(i), b, obj)
	}
	if n := watch.Offers(c); n > 1024 {
		t.Errorf("%d offers are kept", n)
	}
	if _, got := w.commit(c, "a", b, 0); dataOf(got) != "x" {
		t.Errorf("got %q", dataOf(got))
	}
}
