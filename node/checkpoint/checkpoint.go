// Package checkpoint stores small states of a node in files that are written atomically, with a checksum that detects
// changes by others.
package checkpoint

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
)

type stored struct {
	Data     json.RawMessage `json:"data"`
	Checksum uint64          `json:"checksum"`
}

func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// Read reads a state. It is no error if there is none yet.
func Read(file string, into any) (found bool, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && sum(s.Data) != s.Checksum {
		err = errors.New("checkpoint is corrupted")
	}
	if err == nil {
		err = json.Unmarshal(s.Data, into)
	}
	return true, err
}

// Write stores a state; it is on disk when Write returns.
func Write(file string, state any) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	text, err := json.Marshal(stored{data, sum(data)})
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".state-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
