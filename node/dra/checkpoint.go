package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// checkpoint is the name of the file with what is prepared.
const checkpoint = "dra_manager_state"

type stored struct {
	Data     json.RawMessage
	Checksum uint32
}

// load reads what is prepared.
func (m *Manager) load() error {
	file := filepath.Join(m.Dir, checkpoint)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && crc32.ChecksumIEEE(s.Data) != s.Checksum {
		err = errors.New("checkpoint is corrupted")
	}
	if err == nil {
		err = json.Unmarshal(s.Data, &m.claims)
	}
	if err != nil {
		return fmt.Errorf("what is prepared for claims cannot be read; please drain node and remove DRA state file %s: %w", file, err)
	}
	return nil
}

// save writes what is prepared. The caller holds the lock.
func (m *Manager) save() error {
	data, err := json.Marshal(m.claims)
	if err != nil {
		return err
	}
	text, err := json.Marshal(stored{data, crc32.ChecksumIEEE(data)})
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(m.Dir, ".claims-*")
	if err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	return os.Rename(tmp.Name(), filepath.Join(m.Dir, checkpoint))
}
