package run

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"proa.dev/server"
	"proa.dev/store/seal"
)

// sealed encrypts Secrets at rest with a key of this cluster. An external etcd may be shared by servers that do not share
// a folder, so there it is left to whoever runs that etcd.
func (s *Server) sealed() (server.Store, error) {
	if len(s.EtcdServers) > 0 {
		return s.store, nil
	}
	key, err := sealKey(filepath.Join(s.DataDir, "pki", "secrets.key"))
	if err != nil {
		return nil, err
	}
	return seal.New(s.store, []string{"/registry/secrets/"}, seal.Key{Name: "key1", Secret: key})
}

// sealKey reads the key, and makes it on the first start. A key is never made anew where one was: what it has sealed
// would be lost.
func sealKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newSealKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of the secrets: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%s does not hold a key of 32 bytes in base64; restore it from a backup, without it the Secrets in the store cannot be read", path)
	}
	return key, nil
}

func newSealKey(path string) ([]byte, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: the process ends if the kernel has no randomness
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the key of the secrets: %w", err)
	}
	// The key must be on disk before anything is sealed with it.
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the key of the secrets: %w", err)
	}
	_, err = fmt.Fprintln(f, base64.StdEncoding.EncodeToString(key))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the key of the secrets: %w", err)
	}
	return key, nil
}
