// Package interruption records on disk which containers were stopped because their node was stopped, and not because of
// anything that they or their Pod did. A container that is stopped may well exit with code 0; without the record, the
// next agent would take that for success. A record is written before the first signal is sent, so that it cannot be
// lost if the agent is killed.
package interruption

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/checkpoint"
)

// Records are the records of a node: a file for each Pod. The zero value stores nothing.
type Records struct{ dir string }

// RecordsIn returns the records in a node's data folder.
func RecordsIn(nodeDir string) Records { return Records{filepath.Join(nodeDir, "interrupted")} }

// Set has the IDs of the containers of a Pod that were interrupted.
type Set struct {
	ids map[string]bool
	// all says that the record cannot be read: any container may have been interrupted, so none counts as successful.
	all bool
}

// Has reports whether a container was interrupted.
func (s Set) Has(id string) bool { return s.all || s.ids[id] }

// Empty reports whether no container was interrupted.
func (s Set) Empty() bool { return !s.all && len(s.ids) == 0 }

// Clear empties the set.
func (s *Set) Clear() { *s = Set{} }

func (r Records) file(uid types.UID) string { return filepath.Join(r.dir, filepath.Base(string(uid))) }

// Of returns the interrupted containers of a Pod. With an error, the set says that all were.
func (r Records) Of(uid types.UID) (Set, error) {
	if r.dir == "" {
		return Set{}, nil
	}
	var ids []string
	if _, err := checkpoint.Read(r.file(uid), &ids); err != nil {
		return Set{all: true}, fmt.Errorf("read which containers were interrupted: %w", err)
	}
	s := Set{ids: map[string]bool{}}
	for _, id := range ids {
		s.ids[id] = true
	}
	return s, nil
}

// Add records that containers of a Pod are about to be interrupted, in addition to earlier ones. The record is on disk
// when it returns.
func (r Records) Add(uid types.UID, ids ...string) (Set, error) {
	s, _ := r.Of(uid) // a record that cannot be read is replaced
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	known := !s.all
	for _, id := range ids {
		known = known && s.ids[id]
		s.ids[id] = true
	}
	if known {
		return s, nil
	}
	return s, r.write(uid, s)
}

// Put replaces the record of a Pod.
func (r Records) Put(uid types.UID, s Set) error {
	switch {
	case s.all:
		return nil // it could not be read, so it stays
	case s.Empty():
		return r.Remove(uid)
	}
	return r.write(uid, s)
}

func (r Records) write(uid types.UID, s Set) error {
	if r.dir == "" {
		return nil
	}
	err := os.MkdirAll(r.dir, 0o700)
	if err == nil {
		err = checkpoint.Write(r.file(uid), slices.Sorted(maps.Keys(s.ids)))
	}
	if err != nil {
		return fmt.Errorf("record that containers are interrupted: %w", err)
	}
	return nil
}

// Remove removes the record of a Pod.
func (r Records) Remove(uid types.UID) error {
	if r.dir == "" {
		return nil
	}
	if err := os.Remove(r.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of interrupted containers: %w", err)
	}
	return nil
}
