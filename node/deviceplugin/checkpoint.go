package deviceplugin

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	state "proa.dev/node/checkpoint"
)

// checkpoint is the name of the state file.
const checkpoint = "kubelet_internal_checkpoint"

// savedState is the stored state: which containers have which devices, and which resources had plugins.
type savedState struct {
	Pods       map[types.UID]map[string]map[string]allocation `json:"pods,omitempty"`
	Registered []string                                       `json:"registered,omitempty"`
}

// load reads the state. Resources have no devices until their plugins register again.
func (m *Manager) load() (found bool, err error) {
	var r savedState
	file := filepath.Join(m.Dir, checkpoint)
	if found, err = state.Read(file, &r); err != nil {
		return true, fmt.Errorf("what is remembered of devices cannot be read; drain the node and remove %s: %w", file, err)
	}
	if r.Pods != nil {
		m.table.pods = r.Pods
	}
	for _, name := range r.Registered {
		m.table.resources[name] = &resourceDevices{devices: map[string]Device{}, since: time.Now()}
	}
	return found, nil
}

// save writes the state. The caller holds the lock.
func (m *Manager) save() error {
	r := savedState{Pods: m.table.pods}
	for name := range m.table.resources {
		r.Registered = append(r.Registered, name)
	}
	slices.Sort(r.Registered)
	if err := state.Write(filepath.Join(m.Dir, checkpoint), r); err != nil {
		return fmt.Errorf("remember the devices: %w", err)
	}
	return nil
}
