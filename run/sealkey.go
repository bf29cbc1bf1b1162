package run

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/gr"
	"proa.dev/server"
	"proa.dev/store/seal"
)

// firstSealKey is the name of the key that a cluster begins with. Those that follow have the next numbers.
const firstSealKey = "key1"

// sealed encrypts what shall not lie in the store in the clear: what the EncryptionConfiguration says, or Secrets with a key
// of this cluster. An external etcd may be shared by servers that do not share a folder, so without a configuration it is
// left to whoever runs that etcd.
func (s *Server) sealed() (server.Store, error) {
	if s.Encryption == "" && len(s.EtcdServers) > 0 {
		return s.store, nil
	}
	rules, err := s.sealRules()
	if err != nil {
		return nil, err
	}
	s.seal, err = seal.New(s.store, rules...)
	return s.seal, err
}

// sealRules are how values are encrypted.
func (s *Server) sealRules() ([]seal.Rule, error) {
	if s.Encryption != "" {
		return readEncryption(s.Encryption, s.defs)
	}
	keys, err := sealKeys(sealFile(s.DataDir))
	if err != nil {
		return nil, err
	}
	r := seal.Rule{Prefixes: []string{"/registry/secrets/"}}
	for _, k := range keys {
		p, err := seal.AESGCM(k)
		if err != nil {
			return nil, err
		}
		r.Providers = append(r.Providers, p)
	}
	return []seal.Rule{r}, nil
}

// sealFile is where the keys of a data folder are.
func sealFile(dataDir string) string { return filepath.Join(dataDir, "pki", "secrets.key") }

// sealKeys reads the keys, the one that encrypts first, and makes one on the first start. A key is never made anew where one
// was: what it has sealed would be lost.
func sealKeys(path string) ([]seal.Key, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		k := newSealKey(firstSealKey)
		return []seal.Key{k}, writeSealKeys(path, []seal.Key{k})
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of the secrets: %w", err)
	}
	keys, err := parseSealKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file from a backup, without its keys the Secrets in the store cannot be read", path, err)
	}
	return keys, nil
}

// parseSealKeys reads lines of "NAME KEY", the key in base64. A line without a name is that of the first key.
func parseSealKeys(text []byte) (out []seal.Key, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		k := seal.Key{Name: firstSealKey}
		if len(words) == 2 {
			k.Name, words = words[0], words[1:]
		}
		k.Secret, err = base64.StdEncoding.DecodeString(words[0])
		if err != nil || len(words) > 1 || len(k.Secret) != 32 {
			return nil, errors.New("a line does not hold a key of 32 bytes in base64")
		}
		out = append(out, k)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no key")
	}
	return out, lines.Err()
}

func newSealKey(name string) seal.Key {
	k := seal.Key{Name: name, Secret: make([]byte, 32)}
	_, _ = rand.Read(k.Secret) // never fails: the process ends if the kernel has no randomness
	return k
}

// RotateSealKey puts a new key before those of a data folder. A server that runs there takes it over by itself, and writes
// the Secrets again.
func RotateSealKey(dataDir string) (name string, err error) {
	path := sealFile(dataDir)
	keys, err := sealKeys(path)
	if err != nil {
		return "", err
	}
	last := 0
	for _, k := range keys {
		if n, err := strconv.Atoi(strings.TrimPrefix(k.Name, "key")); err == nil {
			last = max(last, n)
		}
	}
	name = fmt.Sprint("key", last+1)
	return name, writeSealKeys(path, append([]seal.Key{newSealKey(name)}, keys...))
}

func writeSealKeys(path string, keys []seal.Key) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	// The keys must be on disk before anything is sealed with them.
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	for _, k := range keys {
		if _, werr := fmt.Fprintln(f, k.Name, base64.StdEncoding.EncodeToString(k.Secret)); werr != nil {
			err = werr
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	return nil
}

// reseal takes over keys that have changed, and has everything written again that is encrypted otherwise.
func (s *Server) reseal(ctx context.Context) error {
	rules, err := s.sealRules()
	if err != nil {
		return err
	}
	if err := s.seal.Set(rules...); err != nil {
		return err
	}
	if s.Encryption != "" {
		return nil // which resources to migrate, and when, is for whoever wrote the file to say
	}
	return s.migrateSecrets(ctx)
}

// migrateSecrets asks for the Secrets to be written again if there is more than one key. The request has the name of the key,
// so that it is made once.
func (s *Server) migrateSecrets(ctx context.Context) error {
	keys, err := sealKeys(sealFile(s.DataDir))
	if err != nil || len(keys) < 2 {
		return err
	}
	m := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: "secrets-" + keys[0].Name}}
	m.Spec.Resource = metav1.GroupResource{Resource: gr.Secrets.Resource}
	_, err = s.front.Client(apiserver()).Create(ctx, gr.StorageVersionMigrations, m)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
