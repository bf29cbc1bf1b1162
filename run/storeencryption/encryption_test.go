package storeencryption

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"log/slog"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"proa.dev/kinds"
	"proa.dev/kv"
	"proa.dev/server/state"
	"proa.dev/store/encryption"
	"proa.dev/store/memory"
)

// testConfig returns a configuration with a store and a data folder; shared means that other servers use the same store.
func testConfig(t *testing.T, store state.Store, dir string, shared bool) Config {
	t.Helper()
	return Config{Store: store, DataDir: dir, Shared: shared, Resources: kinds.All(), Log: slog.New(slog.DiscardHandler),
		Recovered: func() {}}
}

func emptyStore(t *testing.T) state.Store {
	t.Helper()
	s := memory.New(memory.Config{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func putSecret(t *testing.T, to state.Store, name string) {
	t.Helper()
	if _, err := to.Commit(t.Context(), kv.Write{Key: secretsPrefix + "ns/" + name, Value: []byte("swordfish")}); err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, c Config) state.Store {
	t.Helper()
	e, err := openEncryption(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncryptedStore()
}

func openEncryption(t *testing.T, c Config) (*Encryption, error) {
	t.Helper()
	e, err := Open(t.Context(), c)
	t.Cleanup(e.Close)
	return e, err
}

// TestEncryptedSecretsMoveToExternalEtcd checks that a server with an external etcd and the key reads Secrets that were encrypted
// in the embedded store, and encrypts with the same key. Without the key it does not start, and it creates one only in an etcd in
// which nothing has been stored.
func TestEncryptedSecretsMoveToExternalEtcd(t *testing.T) {
	store, dir := emptyStore(t), t.TempDir()
	putSecret(t, openStore(t, testConfig(t, store, dir, false)), "a")
	data := openStore(t, testConfig(t, store, dir, true))
	if p, found, err := data.Get(t.Context(), secretsPrefix+"ns/a"); err != nil || !found || p.Err != nil ||
		string(p.Value) != "swordfish" {
		t.Errorf("read %+v, %t, %v", p, found, err)
	}
	putSecret(t, data, "b")
	raw, _, err := store.Get(t.Context(), secretsPrefix+"ns/b")
	if err != nil || bytes.Contains(raw.Value, []byte("swordfish")) {
		t.Errorf("stored as %q, %v", raw.Value, err)
	}
	other := t.TempDir()
	if _, err := openEncryption(t, testConfig(t, store, other, true)); err == nil ||
		!strings.Contains(err.Error(), encryption.KeyName(raw.Value)) {
		t.Errorf("without the key: %v", err)
	}
	fresh := emptyStore(t)
	putSecret(t, openStore(t, testConfig(t, fresh, other, true)), "c")
	if raw, _, err := fresh.Get(t.Context(), secretsPrefix+"ns/c"); err != nil || string(raw.Value) != "swordfish" {
		t.Errorf("a server that shares a store without keys stores %q, %v", raw.Value, err)
	}
	if _, err := os.Stat(keyFilePath(other)); !os.IsNotExist(err) {
		t.Errorf("a server that shares its store has made a key: %v", err)
	}
	begins := testConfig(t, emptyStore(t), other, true)
	begins.Empty = true
	putSecret(t, openStore(t, begins), "d")
	if raw, _, err := begins.Store.Get(t.Context(), secretsPrefix+"ns/d"); err != nil || encryption.KeyName(raw.Value) == "" {
		t.Errorf("a server that begins a cluster in an etcd stores %q, %v", raw.Value, err)
	}
	if keys := Fingerprints(other); len(keys) != 1 || len(keys[0]) != 32 {
		t.Errorf("the fingerprints of its keys are %v", keys)
	}
}

// TestMissingSecretsKeyIsNotReplaced checks that a server does not start with encrypted Secrets in its store and a key file that
// is missing or has the keys of another cluster, until the key is restored or a new key is created with NewKeyFile.
func TestMissingSecretsKeyIsNotReplaced(t *testing.T) {
	store, dir := emptyStore(t), t.TempDir()
	putSecret(t, openStore(t, testConfig(t, store, dir, false)), "a")
	key, err := os.ReadFile(keyFilePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(keyFilePath(dir)); err != nil {
		t.Fatal(err)
	}
	name := strings.Fields(string(key))[0]
	if _, err := openEncryption(t, testConfig(t, store, dir, false)); err == nil ||
		!strings.Contains(err.Error(), keyFilePath(dir)+" is missing") || !strings.Contains(err.Error(), name) {
		t.Errorf("without the key: %v", err)
	}
	if _, err := os.Stat(keyFilePath(dir)); !os.IsNotExist(err) {
		t.Error("there is a new key")
	}
	// Another key with the same name.
	wrong := name + " " + base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n"
	if err := os.WriteFile(keyFilePath(dir), []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openEncryption(t, testConfig(t, store, dir, false)); err == nil ||
		!strings.Contains(err.Error(), "has not the keys of the Secrets in this store") {
		t.Errorf("with the key of another cluster: %v", err)
	}
	if err := os.WriteFile(keyFilePath(dir), key, 0o600); err != nil {
		t.Fatal(err)
	}
	openStore(t, testConfig(t, store, dir, false))
	if _, err := NewKeyFile(dir); err == nil {
		t.Error("a key was made where there is one")
	}
	// The key is lost, and the user creates a new one.
	if err := os.Remove(keyFilePath(dir)); err != nil {
		t.Fatal(err)
	}
	newName, err := NewKeyFile(dir)
	if err != nil || newName == name {
		t.Fatal(newName, err)
	}
	data := openStore(t, testConfig(t, store, dir, false))
	putSecret(t, data, "b")
	page, err := data.List(t.Context(), kv.Range{Prefix: secretsPrefix})
	if err != nil || len(page.Pairs) != 2 || page.Pairs[0].Err == nil || page.Pairs[1].Err != nil {
		t.Errorf("afterwards the store has %+v, %v", page, err)
	}
}

// TestKeysOfAnotherClusterAreRejected checks that a key file that changes while the server runs is used only if its keys decrypt
// what is stored.
func TestKeysOfAnotherClusterAreRejected(t *testing.T) {
	store, dir := emptyStore(t), t.TempDir()
	s, err := openEncryption(t, testConfig(t, store, dir, false))
	if err != nil {
		t.Fatal(err)
	}
	data := s.EncryptedStore()
	putSecret(t, data, "a")
	other, former := newKey(), must(t, func() ([]encryption.Key, error) { return readKeyFile(keyFilePath(dir)) })
	rules := must(t, func() ([]encryption.Rule, error) { return secretRules([]encryption.Key{other}) })
	if err := s.setRules(t.Context(), rules); err == nil || !strings.Contains(err.Error(), secretsPrefix+"ns/a") {
		t.Errorf("the keys of another cluster: %v", err)
	}
	putSecret(t, data, "b")
	if raw, _, err := store.Get(t.Context(), secretsPrefix+"ns/b"); err != nil || encryption.KeyName(raw.Value) != former[0].Name {
		t.Errorf("a Secret is encrypted with the key %q of another cluster, %v", encryption.KeyName(raw.Value), err)
	}
	rules = must(t, func() ([]encryption.Rule, error) { return secretRules(append([]encryption.Key{other}, former...)) })
	if err := s.setRules(t.Context(), rules); err != nil {
		t.Errorf("a key before the former ones: %v", err)
	}
}

func must[T any](t *testing.T, f func() (T, error)) T {
	t.Helper()
	v, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEncryptionConfigurationOfGuide checks that Secrets can be decrypted by the aesgcm provider of Kubernetes with the
// EncryptionConfiguration of the guide and the key of pki/secrets.key: the stored value has the provider's prefix, a nonce of 12
// bytes, and the object's key in the store as additional data.
func TestEncryptionConfigurationOfGuide(t *testing.T) {
	store, dir := emptyStore(t), t.TempDir()
	putSecret(t, openStore(t, testConfig(t, store, dir, false)), "a")
	line, err := os.ReadFile(keyFilePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/guide/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(guide), "```yaml\napiVersion: apiserver.config.k8s.io/v1\n")
	text, _, ends := strings.Cut(text, "```")
	if !found || !ends {
		t.Fatal("the guide has no EncryptionConfiguration")
	}
	words := strings.Fields(string(line))
	text = strings.NewReplacer("NAME", words[0], "KEY", words[1]).Replace("apiVersion: apiserver.config.k8s.io/v1\n" + text)
	if _, err := parseEncryption([]byte(text), kinds.All(), checkKMS); err != nil {
		t.Fatalf("the configuration of the guide: %v", err)
	}
	var config struct {
		Resources []struct {
			Providers []struct {
				AESGCM *struct {
					Keys []struct{ Name, Secret string }
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	key := config.Resources[0].Providers[0].AESGCM.Keys[0]
	secret, err := base64.StdEncoding.DecodeString(key.Secret)
	if err != nil {
		t.Fatal(err)
	}
	// Decrypt with the layout of k8s.io/apiserver/pkg/storage/value.
	raw, _, err := store.Get(t.Context(), secretsPrefix+"ns/a")
	if err != nil {
		t.Fatal(err)
	}
	sealed, hasPrefix := bytes.CutPrefix(raw.Value, []byte("k8s:enc:aesgcm:v1:"+key.Name+":"))
	block, err := aes.NewCipher(secret)
	if err != nil || !hasPrefix {
		t.Fatalf("%q, %v", raw.Value[:30], err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := aead.Open(nil, sealed[:12], sealed[12:], []byte("/registry/secrets/ns/a")); err != nil ||
		string(value) != "swordfish" {
		t.Errorf("decrypted %q, %v", value, err)
	}
}
