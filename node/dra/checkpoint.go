package dra

import (
	"fmt"
	"path/filepath"

	state "proa.dev/node/checkpoint"
)

// checkpoint is the name of the state file.
const checkpoint = "dra_manager_state"

// load reads the state.
func (m *Manager) load() error {
	file := filepath.Join(m.Dir, checkpoint)
	if _, err := state.Read(file, &m.claims); err != nil {
		return fmt.Errorf("what is prepared for claims cannot be read; please drain node and remove DRA state file %s: %w", file, err)
	}
	return nil
}

// save writes the state. The caller holds the lock.
func (m *Manager) save() error {
	if err := state.Write(filepath.Join(m.Dir, checkpoint), m.claims); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	return nil
}
