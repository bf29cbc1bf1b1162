// Package registrations keeps what admission plugins build from their configuration objects (webhook configurations,
// policies and their bindings), and builds it again when one of these objects has changed.
package registrations

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Source provides the configuration objects from the server's cache.
type Source interface {
	// Wait returns when the objects are loaded.
	Wait(ctx context.Context) error
	// Generation changes with every change of an object.
	Generation() int64
	// All yields the objects of a resource in the order of their names. If some of them cannot be decoded it returns an
	// error as well.
	All(resource schema.GroupResource) (iter.Seq[kind.Object], error)
}

// Index is what is built from the objects of a source. It is safe for concurrent use.
type Index[T any] struct {
	Source Source
	// Build builds the value from the objects as they are now. last is the previous value, parts of which can be reused.
	// An error says that an object cannot be read; it is returned with the value until the next build.
	Build func(last T) (T, error)

	state    atomic.Pointer[state[T]]
	building sync.Mutex // lets one goroutine at a time make a new state
}

// state is the value at one generation. It is immutable.
type state[T any] struct {
	generation int64
	value      T
	err        error
}

// Current returns the current value. An error means that some objects are not known, so that writes must be rejected.
func (x *Index[T]) Current(ctx context.Context) (T, error) {
	s := x.state.Load()
	if s == nil || s.err != nil || s.generation != x.Source.Generation() {
		var err error
		if s, err = x.rebuild(ctx); err != nil {
			var none T
			return none, err
		}
	}
	return s.value, s.err
}

func (x *Index[T]) rebuild(ctx context.Context) (*state[T], error) {
	x.building.Lock()
	defer x.building.Unlock()
	last := x.state.Load()
	if last == nil {
		if err := x.Source.Wait(ctx); err != nil {
			return nil, err
		}
		last = &state[T]{generation: -1}
	}
	// The generation is read before the objects, so that the objects of a state are never older than its generation.
	next := &state[T]{generation: x.Source.Generation()}
	if next.generation == last.generation && last.err == nil {
		return last, nil
	}
	next.value, next.err = x.Build(last.value)
	x.state.Store(next)
	return next, nil
}
