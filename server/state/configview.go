package state

import (
	"context"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/watch"
)

// ConfigView reads the resources by which some admission plugins are configured, such as webhook configurations. It
// does not wait for the newest state: a change takes effect when its event has arrived.
type ConfigView struct {
	state  *State
	caches func() []*watch.Cache
}

// NewConfigView returns a view of resources, whose caches start on first use.
func NewConfigView(s *State, resources ...schema.GroupResource) *ConfigView {
	return &ConfigView{state: s, caches: sync.OnceValue(func() (out []*watch.Cache) {
		for _, r := range resources {
			out = append(out, s.Cache(s.Def(r)))
		}
		return out
	})}
}

// Wait waits for the newest state of the resources.
func (v *ConfigView) Wait(ctx context.Context) error {
	for _, c := range v.caches() {
		if err := c.WaitUntilFresh(ctx); err != nil {
			return apistatus.FromStore(err)
		}
	}
	return nil
}

// Generation returns a number that changes with every change of one of the resources.
func (v *ConfigView) Generation() (sum int64) {
	for _, c := range v.caches() {
		sum += c.Rev()
	}
	return sum
}

// All yields the objects of a resource in the order of their names. If some of them cannot be decoded, it yields the
// others and returns an error.
func (v *ConfigView) All(resource schema.GroupResource) (iter.Seq[kind.Object], error) {
	def := v.state.Def(resource)
	c := v.state.Cache(def)
	return Cached[kind.Object](v.state, resource, ""), UnreadableError(c, c.UnreadableKeys(def.Prefix()))
}
