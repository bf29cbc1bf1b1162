package server

import (
	"context"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// ConfigView is a few resources of the state as admission plugins read them that are configured by objects. It does not wait for the newest
// state: a change takes effect when its event has arrived, which is at once.
type ConfigView struct {
	state  *State
	caches func() []*watch.Cache
}

// NewConfigView makes the view; the caches start on first use.
func NewConfigView(s *State, resources ...schema.GroupResource) *ConfigView {
	return &ConfigView{state: s, caches: sync.OnceValue(func() (out []*watch.Cache) {
		for _, r := range resources {
			out = append(out, s.Cache(s.Def(r)))
		}
		return out
	})}
}

// Wait returns when the resources are loaded.
func (v *ConfigView) Wait(ctx context.Context) error {
	for _, c := range v.caches() {
		if err := c.Fresh(ctx); err != nil {
			return storeError(err)
		}
	}
	return nil
}

// Generation changes with every change of one of the resources.
func (v *ConfigView) Generation() (sum int64) {
	for _, c := range v.caches() {
		sum += c.Rev()
	}
	return sum
}

// All yields the objects of a resource in the order of their names. If some of them cannot be decoded it yields the others, and returns an
// error as well.
func (v *ConfigView) All(resource schema.GroupResource) (iter.Seq[kind.Object], error) {
	def := v.state.Def(resource)
	c := v.state.Cache(def)
	return seq[kind.Object](v.state, resource, ""), unreadableError(c, c.UnreadableKeys(def.Prefix()))
}
