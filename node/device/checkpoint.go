package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// checkpoint is the name of the file with what is remembered.
const checkpoint = "kubelet_internal_checkpoint"

// remembered is what survives the agent: who has what, and which resources had plugins.
type remembered struct {
	Pods       map[types.UID]map[string]map[string]given `json:"pods,omitempty"`
	Registered []string                                  `json:"registered,omitempty"`
}

type stored struct {
	Data     json.RawMessage `json:"data"`
	Checksum uint64          `json:"checksum"`
}

func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// load reads what is remembered. Resources are there with nothing to give until their plugins register again.
func (m *Manager) load() (found bool, err error) {
	text, err := os.ReadFile(filepath.Join(m.Dir, checkpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var s stored
	var r remembered
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && sum(s.Data) != s.Checksum {
		err = errors.New("checkpoint is corrupted")
	}
	if err == nil {
		err = json.Unmarshal(s.Data, &r)
	}
	if err != nil {
		return true, fmt.Errorf("what is remembered of devices cannot be read; drain the node and remove %s: %w", filepath.Join(m.Dir, checkpoint), err)
	}
	if r.Pods != nil {
		m.table.pods = r.Pods
	}
	for _, name := range r.Registered {
		m.table.resources[name] = &stock{devices: map[string]Device{}, since: time.Now()}
	}
	return true, nil
}

// save writes what is remembered. The caller holds the lock.
func (m *Manager) save() error {
	r := remembered{Pods: m.table.pods}
	for name := range m.table.resources {
		r.Registered = append(r.Registered, name)
	}
	slices.Sort(r.Registered)
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text, err := json.Marshal(stored{data, sum(data)})
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(m.Dir, ".checkpoint-*")
	if err != nil {
		return fmt.Errorf("remember the devices: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("remember the devices: %w", err)
	}
	return os.Rename(tmp.Name(), filepath.Join(m.Dir, checkpoint))
}
