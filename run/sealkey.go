package run

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
	"os"
	"path/filepath"
	"slices"
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/apiserver/pkg/apis/apiserver"

	"proa.dev/kinds/gr"
	"proa.dev/kv"
	"proa.dev/server"
	"proa.dev/store/encryption"
)

// firstSealKey is the name of a key in a file of the first version, which had no names. Others have names of their own, or one that is
// derived from the key, so that different keys never share a name.
const firstSealKey = "key1"

// secretsPrefix is where Secrets are stored.
const secretsPrefix = "/registry/secrets/"

// sealed encrypts what shall not lie in the store in the clear: what the EncryptionConfiguration says, or Secrets with the keys of
// pki/secrets.key. A cluster with an embedded store makes that file on its first start. Servers that share an etcd never make one, since
// each would make another key: they use the file if it is there, and leave Secrets in the clear if it is not.
func (s *Server) sealed(ctx context.Context) (server.Store, error) {
	s.kms = newKMSPlugins(ctx, s.log, func() { s.state.RereadUnreadable() })
	rules, err := s.sealRules(ctx)
	if errors.Is(err, fs.ErrNotExist) && s.Encryption == "" {
		rules, err = s.firstSealRules(ctx)
	}
	if err != nil {
		return nil, err
	}
	if s.seal, err = encryption.New(s.store, rules...); err != nil {
		return nil, err
	}
	return s.seal, s.checkSealKeys(ctx)
}

// firstSealRules are how Secrets are encrypted where there are no keys: with a new key, or not at all if servers share the store. It is an
// error if there are Secrets that need the keys.
func (s *Server) firstSealRules(ctx context.Context) ([]encryption.Rule, error) {
	path := sealFile(s.DataDir)
	if name, key, err := s.anySealed(ctx); err != nil {
		return nil, err
	} else if name != "" {
		return nil, fmt.Errorf("%s is missing: it has the key %q, without which Secrets such as %s cannot be read. "+
			"Put the file back from the backup of pki/ or from another server of this cluster. If it is lost, \"proa certs new-secrets-key\" makes a new one, "+
			"and the Secrets that only the lost key can read stay unreadable until they are deleted", path, name, key)
	}
	if len(s.EtcdServers) > 0 {
		return []encryption.Rule{{Prefixes: []string{secretsPrefix}, Providers: []encryption.Provider{encryption.Plain()}}}, nil
	}
	keys := []encryption.Key{newSealKey()}
	if err := writeSealKeys(path, keys, false); err != nil {
		return nil, err
	}
	return secretRules(keys)
}

// anySealed finds a Secret in the store that is encrypted, with the name of its key.
func (s *Server) anySealed(ctx context.Context) (name, key string, err error) {
	p, err := s.findSecret(ctx, func(p kv.Pair) bool { return encryption.KeyName(p.Value) != "" })
	return encryption.KeyName(p.Value), p.Key, err
}

// findSecret returns the first Secret, as it is stored, that a function accepts; one without a key if there is none.
func (s *Server) findSecret(ctx context.Context, accept func(kv.Pair) bool) (kv.Pair, error) {
	r := kv.Range{Prefix: secretsPrefix, Limit: sealPage}
	for {
		page, err := s.store.List(ctx, r)
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

// sealPage is how many Secrets are read at a time, and how many are looked at to find out whether the keys are the right ones.
const sealPage = 100

// checkSealKeys refuses keys with which none of the first Secrets that are encrypted can be decrypted: they are those of another cluster. A
// single Secret that cannot be decrypted does not keep the others from being served.
func (s *Server) checkSealKeys(ctx context.Context) error {
	page, err := s.store.List(ctx, kv.Range{Prefix: secretsPrefix, Limit: sealPage})
	if err != nil {
		return fmt.Errorf("read the Secrets: %w", err)
	}
	var bad kv.Pair
	for _, p := range page.Pairs {
		if encryption.KeyName(p.Value) == "" {
			continue
		}
		if bad = s.seal.Open(ctx, p); bad.Err == nil {
			return nil
		}
	}
	if bad.Err == nil || s.Encryption == "" && lostSealKeys(sealFile(s.DataDir)) {
		return nil
	}
	from := s.Encryption
	if from == "" {
		from = sealFile(s.DataDir)
	}
	return fmt.Errorf("%s has not the keys of the Secrets in this store: none can be decrypted; %s: %w. Put the keys back from the backup of pki/ or from "+
		"another server of this cluster", from, bad.Key, bad.Err)
}

// sealRules are how values are encrypted. The error is fs.ErrNotExist if there is no file of keys.
func (s *Server) sealRules(ctx context.Context) ([]encryption.Rule, error) {
	if s.Encryption != "" {
		s.kms.reading()
		return readEncryption(s.Encryption, s.defs, func(c *api.KMSConfiguration) (encryption.Envelope, error) { return s.kms.plugin(ctx, c) })
	}
	keys, err := sealKeys(sealFile(s.DataDir))
	if err != nil {
		return nil, err
	}
	return secretRules(keys)
}

// secretRules encrypt Secrets with the first of some keys.
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

// sealFile is where the keys of a data folder are.
func sealFile(dataDir string) string { return filepath.Join(dataDir, "pki", "secrets.key") }

// sealKeys reads the keys, the one that encrypts first.
func sealKeys(path string) ([]encryption.Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of the secrets: %w", err)
	}
	keys, err := parseSealKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file from a backup, without its keys the Secrets in the store cannot be read", path, err)
	}
	return keys, nil
}

// lostMark is the line of a file of keys that says that there were others, which are lost: Secrets that cannot be decrypted do not keep the
// server from starting.
const lostMark = "# keys before these are lost"

func lostSealKeys(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte(lostMark))
}

// parseSealKeys reads lines of "NAME KEY", the key in base64. A line without a name is that of the first key.
func parseSealKeys(text []byte) (out []encryption.Key, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		k := encryption.Key{Name: firstSealKey}
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

// newSealKey makes a key. Its name is derived from it, so that no two keys have the same.
func newSealKey() encryption.Key {
	k := encryption.Key{Secret: make([]byte, 32)}
	_, _ = rand.Read(k.Secret) // never fails: the process ends if the kernel has no randomness
	sum := sha256.Sum256(append([]byte("name of a key of Secrets\n"), k.Secret...))
	k.Name = "key-" + hex.EncodeToString(sum[:6])
	return k
}

// RotateSealKey puts a new key before those of a data folder. A server that runs there takes it over by itself, and writes
// the Secrets again.
func RotateSealKey(dataDir string) (name string, err error) {
	path := sealFile(dataDir)
	keys, err := sealKeys(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no key to put a new one before: %s is missing. A cluster with --encryption-provider-config has its keys in the file that this names, and "+
			"others are added there. If the keys are lost, put the file back from the backup of pki/; \"proa certs new-secrets-key\" is for those who have none", path)
	}
	if err != nil {
		return "", err
	}
	k := newSealKey()
	return k.Name, writeSealKeys(path, append([]encryption.Key{k}, keys...), lostSealKeys(path))
}

// NewSealKey makes the file of keys of a data folder where it is lost. What the lost keys have encrypted stays unreadable.
func NewSealKey(dataDir string) (name string, err error) {
	path := sealFile(dataDir)
	if _, err := os.Stat(path); err == nil {
		return "", fmt.Errorf("%s is there; \"proa certs rotate-secrets\" puts a new key before those that it has", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	k := newSealKey()
	return k.Name, writeSealKeys(path, []encryption.Key{k}, true)
}

// writeSealKeys writes a file of keys; lost says that there were others.
func writeSealKeys(path string, keys []encryption.Key, lost bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the key of the secrets: %w", err)
	}
	// The keys must be on disk before anything is sealed with them.
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

// reseal takes over keys that have changed, and has everything written again that is encrypted otherwise.
func (s *Server) reseal(ctx context.Context) error {
	rules, err := s.sealRules(ctx)
	if err != nil {
		return err
	}
	if err := s.setSealRules(ctx, rules); err != nil {
		return err
	}
	s.kms.retain()
	s.state.RereadUnreadable()
	if s.Encryption != "" {
		return nil // which resources to migrate, and when, is for whoever wrote the file to say
	}
	return s.migrateSecrets(ctx)
}

// setSealRules takes over other keys, unless a Secret that can be decrypted now could not be any more.
func (s *Server) setSealRules(ctx context.Context, rules []encryption.Rule) error {
	next, err := encryption.New(s.store, rules...)
	if err != nil {
		return err
	}
	lost, err := s.findSecret(ctx, func(p kv.Pair) bool { return next.Open(ctx, p).Err != nil && s.seal.Open(ctx, p).Err == nil })
	if err != nil {
		return err
	}
	if lost.Key != "" {
		return fmt.Errorf("with these keys %s, and maybe other Secrets, could not be read any more: %w. Keep the former keys in the file, behind the new ones, "+
			"until all Secrets are written again", lost.Key, next.Open(ctx, lost).Err)
	}
	return s.seal.Set(rules...)
}

// migrateSecrets asks for the Secrets to be written again if there is more than one key. The request has the name of the key,
// so that it is made once.
func (s *Server) migrateSecrets(ctx context.Context) error {
	keys, err := sealKeys(sealFile(s.DataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is encrypted
	}
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

// syncDir brings the names in a folder to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
