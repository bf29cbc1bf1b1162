package state

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	memorystore "proa.dev/store/memory"
)

// definitionsTest is a State over a store in which a test writes definitions.
type definitionsTest struct {
	*testing.T
	*State
	store *memorystore.Store
	def   *kind.Def // of definitions
	revs  map[string]int64
}

func newDefinitionsTest(t *testing.T) *definitionsTest {
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	d := &definitionsTest{T: t, def: apiextensions.CustomResourceDefinitions(apiextensions.Hooks{}),
		store: memorystore.New(memorystore.Config{}), revs: map[string]int64{}}
	d.State = New(t.Context(), codec.New(scheme), d.store, []*kind.Def{d.def}, slog.New(slog.DiscardHandler))
	return d
}

// write writes a value under a key, or deletes the key if the value is nil.
func (d *definitionsTest) write(key string, value []byte) {
	d.Helper()
	rev, err := d.store.Commit(d.Context(), kv.Write{Key: key, Rev: d.revs[key], Value: value})
	if err != nil {
		d.Fatal(err)
	}
	if d.revs[key] = rev; value == nil {
		delete(d.revs, key)
	}
	synctest.Wait()
}

// define writes a definition.
func (d *definitionsTest) define(o *apiextensionsv1.CustomResourceDefinition) {
	d.Helper()
	value, err := d.Codec.Store(d.def, o)
	if err != nil {
		d.Fatal(err)
	}
	d.write(d.def.Key("", o.Name), value)
}

func (d *definitionsTest) follow() {
	d.Helper()
	if err := d.FollowDefinitions(d.State.ctx, nil); err != nil {
		d.Fatal(err)
	}
}

func things(n string) schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: "things" + n}
}

// TestResourceOfUnreadableDefinitionIsServed checks that a resource is served as before while its definition cannot be decoded, and
// follows it again when it can, or is deleted.
func TestResourceOfUnreadableDefinitionIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDefinitionsTest(t)
		defer d.Close()
		d.define(largeDefinition(1, 1))
		d.follow()
		before := d.State.Def(things("1"))
		if before == nil {
			t.Fatal("the resource is not served")
		}
		key := d.def.Key("", "things1.example.com")
		d.write(key, []byte("damaged"))
		if d.State.Def(things("1")) != before {
			t.Error("the resource is not served as before when its definition has become unreadable")
		}
		d.define(largeDefinition(2, 1))
		if d.State.Def(things("1")) != before || d.State.Def(things("2")) == nil {
			t.Error("after a change of another definition, the resource of an unreadable one counts as deleted")
		}
		if d.State.Custom(before) == nil {
			t.Error("the resource counts as deleted for a request that has begun before")
		}
		changed := largeDefinition(1, 1)
		changed.Generation, changed.Spec.Versions[0].Name = 2, "v2"
		d.define(changed)
		if def := d.State.Def(things("1")); def == nil || def.Version != "v2" {
			t.Errorf("the resource does not follow its definition, which is readable again: %v", def)
		}
		d.write(key, []byte("damaged"))
		d.write(key, nil)
		if d.State.Def(things("1")) != nil {
			t.Error("the resource of a deleted definition is served")
		}
	})
}

// TestDefinitionUnreadableFromTheStart checks that an unreadable definition is not served and does not disturb others, and is served
// as soon as it is readable.
func TestDefinitionUnreadableFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDefinitionsTest(t)
		defer d.Close()
		d.define(largeDefinition(1, 1))
		d.write(d.def.Key("", "things2.example.com"), []byte("damaged"))
		d.follow()
		if d.State.Def(things("1")) == nil || d.State.Def(things("2")) != nil {
			t.Error("not exactly the resource of the readable definition is served")
		}
		d.define(largeDefinition(2, 1))
		if d.State.Def(things("2")) == nil {
			t.Error("a definition that is readable now is not served")
		}
	})
}

// TestUnreadableCountsCustomObjects checks that Unreadable counts the objects of custom resources too.
func TestUnreadableCountsCustomObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDefinitionsTest(t)
		defer d.Close()
		d.define(largeDefinition(1, 1))
		d.follow()
		def := d.State.Def(things("1"))
		d.write(def.Key("ns", "a"), []byte("damaged"))
		if _, err := d.State.List(d.State.ctx, things("1"), "ns"); err == nil || !strings.Contains(err.Error(), def.Key("ns", "a")) {
			t.Errorf("the list has the error %v", err)
		}
		if n := d.Unreadable()[things("1").String()]; n != 1 {
			t.Errorf("%d objects are unreadable: %v", n, d.Unreadable())
		}
	})
}
