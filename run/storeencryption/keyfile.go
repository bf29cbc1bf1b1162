// Package storeencryption decides how values are encrypted in the store: as an EncryptionConfiguration says, whose keys
// may be held by key management services, or Secrets with the keys in pki/secrets.key. It also makes and rotates those
// keys.
package storeencryption

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/apiserver/pkg/apis/apiserver"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/state"
	"proa.dev/store/encryption"
)

// firstKeyName is the name of a key in a file of the first version, which had no names. Later names are derived from
// the key, so that different keys never share a name.
const firstKeyName = "key1"

// secretsPrefix is the prefix of the keys of Secrets in the store.
const secretsPrefix = "/registry/secrets/"

// Config is what StoreEncryption needs to know.
type Config struct {
	// Store holds the encrypted values.
	Store state.Store
	// DataDir is the data folder, which has the file of keys.
	DataDir string
	// File is the path of an EncryptionConfiguration. If it is empty, Secrets are encrypted with the keys in pki/secrets.key.
	File string
	// Shared says that other servers use the same store, and Empty that nothing has been stored there yet.
	Shared, Empty bool
	// Resources are the resources whose keys the EncryptionConfiguration may name.
	Resources []*kind.Def
	Log       *slog.Logger
	// Recovered is called when a key management service works again after it failed.
	Recovered func()
}

// Encryption encrypts values on their way to the store: those that the EncryptionConfiguration names, or Secrets with
// the keys in pki/secrets.key. The first start of a cluster makes that file. Servers that share an etcd with objects in it
// never make one, because each would make another key: they use the file if it exists, and store Secrets unencrypted if
// it does not, as in clusters of earlier versions.
type Encryption struct {
	Config
	sealed *encryption.EncryptedStore
	kms    *kmsPlugins
}

// Open reads the keys, or makes the first one, and checks that Secrets in the store can be decrypted with them. The
// result must be closed even if there is an error.
func Open(ctx context.Context, c Config) (*Encryption, error) {
	s := &Encryption{Config: c, kms: newKMSPlugins(ctx, c.Log, c.Recovered)}
	rules, err := s.readRules(ctx)
	if errors.Is(err, fs.ErrNotExist) && s.File == "" {
		rules, err = s.firstRules(ctx)
	}
	if err != nil {
		return s, err
	}
	if s.sealed, err = encryption.New(s.Store, rules...); err != nil {
		return s, err
	}
	return s, s.checkKeys(ctx)
}

// EncryptedStore returns the store through which values are read and written in the clear.
func (s *Encryption) EncryptedStore() state.Store { return s.sealed }

// Collectors returns the metrics about key management services.
func (s *Encryption) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.kms.latency}
}

// Health returns an error if a key management service does not work.
func (s *Encryption) Health() error { return s.kms.health() }

// Close ends the connections to key management services.
func (s *Encryption) Close() { s.kms.close() }

// KeyFile returns the path of the file from which the keys are read: the EncryptionConfiguration or pki/secrets.key.
func (s *Encryption) KeyFile() string {
	if s.File != "" {
		return s.File
	}
	return keyFilePath(s.DataDir)
}

// firstRules returns how Secrets are encrypted where there is no file of keys: with a new key, or not at all in a shared store that has
// begun without. It is an error if the store has encrypted Secrets.
func (s *Encryption) firstRules(ctx context.Context) ([]encryption.Rule, error) {
	path := keyFilePath(s.DataDir)
	if name, key, err := s.findEncryptedSecret(ctx); err != nil {
		return nil, err
	} else if name != "" {
		return nil, fmt.Errorf("%s is missing: it has the key %q, without which Secrets such as %s cannot be read. "+
			"Put the file back from the backup of pki/ or from another server of this cluster. If it is lost, \"proa certs new-secrets-key\" makes a new one, "+
			"and the Secrets that only the lost key can read stay unreadable until they are deleted", path, name, key)
	}
	if s.Shared && !s.Empty {
		return []encryption.Rule{{Prefixes: []string{secretsPrefix}, Providers: []encryption.Provider{encryption.Plain()}}}, nil
	}
	keys := []encryption.Key{newKey()}
	if err := writeKeyFile(path, keys, false); err != nil {
		return nil, err
	}
	return secretRules(keys)
}

// findEncryptedSecret returns the name of the key of some encrypted Secret in the store, and the key of that Secret in the store.
func (s *Encryption) findEncryptedSecret(ctx context.Context) (name, key string, err error) {
	p, err := s.findSecret(ctx, func(p kv.Pair) bool { return encryption.KeyName(p.Value) != "" })
	return encryption.KeyName(p.Value), p.Key, err
}

// findSecret returns the first Secret, as it is stored, that a function accepts; a pair without a key if there is none.
func (s *Encryption) findSecret(ctx context.Context, accept func(kv.Pair) bool) (kv.Pair, error) {
	r := kv.Range{Prefix: secretsPrefix, Limit: secretsPageSize}
	for {
		page, err := s.Store.List(ctx, r)
		if err != nil {
			return kv.Pair{}, fmt.Errorf("read the Secrets: %w", err)
		}
		if i := slices.IndexFunc(page.Pairs, accept); i >= 0 {
			return page.Pairs[i], nil
		}
		if int64(len(page.Pairs)) >= page.Total {
			return kv.Pair{}, nil
		}
		r.Rev, r.From = page.Rev, page.Pairs[len(page.Pairs)-1].Key+"\x00"
	}
}

// secretsPageSize is how many Secrets are read at a time, and how many are read to check the keys.
const secretsPageSize = 100

// checkKeys refuses keys that can decrypt none of the first encrypted Secrets: they are those of another cluster. A
// single Secret that cannot be decrypted does not keep the others from being served.
func (s *Encryption) checkKeys(ctx context.Context) error {
	page, err := s.Store.List(ctx, kv.Range{Prefix: secretsPrefix, Limit: secretsPageSize})
	if err != nil {
		return fmt.Errorf("read the Secrets: %w", err)
	}
	var bad kv.Pair
	for _, p := range page.Pairs {
		if encryption.KeyName(p.Value) == "" {
			continue
		}
		if bad = s.sealed.Open(ctx, p); bad.Err == nil {
			return nil
		}
	}
	if bad.Err == nil || s.File == "" && hasLostKeys(keyFilePath(s.DataDir)) {
		return nil
	}
	return fmt.Errorf("%s has not the keys of the Secrets in this store: none can be decrypted; %s: %w. Put the keys back from the backup of pki/ or from "+
		"another server of this cluster", s.KeyFile(), bad.Key, bad.Err)
}

// readRules reads how values are encrypted. The error is fs.ErrNotExist if there is no file of keys.
func (s *Encryption) readRules(ctx context.Context) ([]encryption.Rule, error) {
	if s.File != "" {
		s.kms.reading()
		return readEncryption(s.File, s.Resources,
			func(c *api.KMSConfiguration) (encryption.Envelope, error) { return s.kms.plugin(ctx, c) })
	}
	keys, err := readKeyFile(keyFilePath(s.DataDir))
	if err != nil {
		return nil, err
	}
	return secretRules(keys)
}

// secretRules returns the rule that encrypts Secrets with the first of some keys.
func secretRules(keys []encryption.Key) ([]encryption.Rule, error) {
	r := encryption.Rule{Prefixes: []string{secretsPrefix}}
	for _, k := range keys {
		p, err := encryption.AESGCM(k)
		if err != nil {
			return nil, err
		}
		r.Providers = append(r.Providers, p)
	}
	return []encryption.Rule{r}, nil
}

// Fingerprints returns the fingerprints of the keys in pki/secrets.key of a data folder, the one in use first; none if there
// is no file. They tell nothing of the keys, which are random.
func Fingerprints(dataDir string) []string {
	out := []string{}
	keys, err := readKeyFile(keyFilePath(dataDir))
	if err != nil {
		return out
	}
	for _, k := range keys {
		sum := sha256.Sum256(append([]byte("fingerprint of a key of Secrets\n"), k.Secret...))
		out = append(out, hex.EncodeToString(sum[:16]))
	}
	return out
}

// keyFilePath returns the path of the key file of a data folder.
func keyFilePath(dataDir string) string { return filepath.Join(dataDir, "pki", "secrets.key") }

// readKeyFile reads a key file. The first key is the one that encrypts.
func readKeyFile(path string) ([]encryption.Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of the secrets: %w", err)
	}
	keys, err := parseKeyFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file from a backup, without its keys the Secrets in the store cannot be read", path, err)
	}
	return keys, nil
}

// lostMark is the line of a key file that says that earlier keys are lost. Secrets that cannot be decrypted then do not
// keep the server from starting.
const lostMark = "# keys before these are lost"

func hasLostKeys(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte(lostMark))
}

// parseKeyFile parses lines of "NAME KEY", the key in base64. A line without a name has the first key.
func parseKeyFile(text []byte) (out []encryption.Key, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		k := encryption.Key{Name: firstKeyName}
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

// newKey returns a random key. Its name is derived from it, so that no two keys have the same name.
func newKey() encryption.Key {
	k := encryption.Key{Secret: make([]byte, 32)}
	_, _ = rand.Read(k.Secret) // never fails: the process ends if the kernel has no randomness
	sum := sha256.Sum256(append([]byte("name of a key of Secrets\n"), k.Secret...))
	k.Name = "key-" + hex.EncodeToString(sum[:6])
	return k
}

// RotateKey puts a new key before those of a data folder. A server that runs there uses it within seconds, and writes
// the Secrets again.
func RotateKey(dataDir string) (name string, err error) {
	path := keyFilePath(dataDir)
	keys, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no key to put a new one before: %s is missing. A cluster with --encryption-provider-config has its keys in the file that this names, and "+
			"others are added there. If the keys are lost, put the file back from the backup of pki/; \"proa certs new-secrets-key\" is for those who have none", path)
	}
	if err != nil {
		return "", err
	}
	k := newKey()
	return k.Name, writeKeyFile(path, append([]encryption.Key{k}, keys...), hasLostKeys(path))
}

// AddKey puts a new key behind those of a data folder: Secrets are read with it, and not encrypted yet. Servers that share
// a store must all have a key before the first of them uses it.
func AddKey(dataDir string) (name string, err error) {
	path := keyFilePath(dataDir)
	keys, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is missing. Copy it from another server of the cluster; if no server has one, the Secrets are not encrypted, and "+
			"\"proa certs new-secrets-key\" makes the first key", path)
	}
	if err != nil {
		return "", err
	}
	k := newKey()
	return k.Name, writeKeyFile(path, append(keys, k), hasLostKeys(path))
}

// UseKey puts one of the keys of a data folder before the others, so that a server that runs there encrypts with it.
func UseKey(dataDir, name string) error {
	path := keyFilePath(dataDir)
	keys, err := readKeyFile(path)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, func(k encryption.Key) bool { return k.Name == name })
	if i < 0 {
		return fmt.Errorf("%s has no key %q; copy the file from the server on which \"proa certs rotate-secrets\" has made it", path, name)
	}
	chosen := keys[i]
	return writeKeyFile(path, append([]encryption.Key{chosen}, slices.Delete(keys, i, i+1)...), hasLostKeys(path))
}

// NewKeyFile makes the key file of a data folder where it is lost. Secrets that were encrypted with the lost keys stay
// unreadable.
func NewKeyFile(dataDir string) (name string, err error) {
	path := keyFilePath(dataDir)
	if _, err := os.Stat(path); err == nil {
		return "", fmt.Errorf("%s is there; \"proa certs rotate-secrets\" puts a new key before those that it has", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	k := newKey()
	return k.Name, writeKeyFile(path, []encryption.Key{k}, true)
}

// writeKeyFile writes a key file; lost says that earlier keys are lost.
func writeKeyFile(path string, keys []encryption.Key, lost bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	// The keys must be on disk before anything is encrypted with them.
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	if lost {
		_, err = fmt.Fprintln(f, lostMark)
	}
	for _, k := range keys {
		if _, werr := fmt.Fprintln(f, k.Name, base64.StdEncoding.EncodeToString(k.Secret)); werr != nil {
			err = werr
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	return nil
}

// Reload reads the keys again and uses them from then on.
func (s *Encryption) Reload(ctx context.Context) error {
	rules, err := s.readRules(ctx)
	if err != nil {
		return err
	}
	if err := s.setRules(ctx, rules); err != nil {
		return err
	}
	s.kms.retain()
	return nil
}

// setRules replaces the keys, unless a Secret that can be decrypted now could not be decrypted any more.
func (s *Encryption) setRules(ctx context.Context, rules []encryption.Rule) error {
	next, err := encryption.New(s.Store, rules...)
	if err != nil {
		return err
	}
	lost, err := s.findSecret(ctx, func(p kv.Pair) bool { return next.Open(ctx, p).Err != nil && s.sealed.Open(ctx, p).Err == nil })
	if err != nil {
		return err
	}
	if lost.Key != "" {
		return fmt.Errorf("with these keys %s, and maybe other Secrets, could not be read any more: %w. Keep the former keys in the file, behind the new ones, "+
			"until all Secrets are written again", lost.Key, next.Open(ctx, lost).Err)
	}
	return s.sealed.Set(rules...)
}

// KeyToMigrateTo returns the name of the newest key in pki/secrets.key if Secrets may still be encrypted with an older one; empty if
// there is nothing to encrypt again. Which resources to migrate after a change of an EncryptionConfiguration is its author's decision.
func (s *Encryption) KeyToMigrateTo() (string, error) {
	if s.File != "" {
		return "", nil
	}
	keys, err := readKeyFile(keyFilePath(s.DataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // nothing is encrypted
	}
	if err != nil || len(keys) < 2 {
		return "", err
	}
	return keys[0].Name, nil
}

// syncDir flushes the directory entries of a folder to disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
