package storeencryption

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"proa.dev/kinds"
	"proa.dev/store/encryption"
)

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	path := keyFilePath(dir)
	if _, err := readKeyFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("keys of a folder without any: %v", err)
	}
	if _, err := RotateKey(dir); err == nil || !strings.Contains(err.Error(), path+" is missing") ||
		!strings.Contains(err.Error(), "new-secrets-key") {
		t.Errorf("where there are no keys: %v", err)
	}
	if err := writeKeyFile(path, []encryption.Key{newKey()}, false); err != nil {
		t.Fatal(err)
	}
	first, err := readKeyFile(path)
	if err != nil || len(first) != 1 || len(first[0].Secret) != 32 {
		t.Fatal(first, err)
	}
	if again, err := readKeyFile(path); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("a second start has other keys: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for n := range 2 {
		before, err := readKeyFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := RotateKey(dir)
		if err != nil || slices.ContainsFunc(before, func(k encryption.Key) bool { return k.Name == name }) {
			t.Fatal(name, err)
		}
		now, err := readKeyFile(path)
		if err != nil || len(now) != n+2 || now[0].Name != name || !reflect.DeepEqual(now[1:], before) {
			t.Errorf("after rotation there are %v, %v", now, err)
		}
	}
	// A file with only a key has the first version of the format.
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(first[0].Secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first[0].Name = "key1"
	if old, err := readKeyFile(path); err != nil || !reflect.DeepEqual(old, first) {
		t.Errorf("a file of the first version: %v, %v", old, err)
	}
	good := base64.StdEncoding.EncodeToString(first[0].Secret)
	for _, bad := range []string{"", "short", strings.Repeat("!", 44), good + "\nkey2 x\n", "a b " + good} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readKeyFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a key file with %q: %v", bad, err)
		}
		if _, err := RotateKey(dir); err == nil {
			t.Errorf("a key file with %q was rotated", bad)
		}
	}
}

// TestKeyIsAddedBeforeItIsUsed checks the two steps of a rotation of keys that servers share.
func TestKeyIsAddedBeforeItIsUsed(t *testing.T) {
	dir := t.TempDir()
	if _, err := AddKey(dir); err == nil || !strings.Contains(err.Error(), "Copy it from another server") {
		t.Errorf("without keys: %v", err)
	}
	first := newKey()
	if err := writeKeyFile(keyFilePath(dir), []encryption.Key{first}, false); err != nil {
		t.Fatal(err)
	}
	name, err := AddKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := readKeyFile(keyFilePath(dir))
	if err != nil || len(keys) != 2 || keys[0].Name != first.Name || keys[1].Name != name {
		t.Errorf("after the first step: %v, %v", keys, err)
	}
	if err := UseKey(dir, "other"); err == nil || !strings.Contains(err.Error(), `has no key "other"`) {
		t.Errorf("a key that is not there: %v", err)
	}
	for range 2 { // the second time changes nothing
		if err := UseKey(dir, name); err != nil {
			t.Fatal(err)
		}
		if now, err := readKeyFile(keyFilePath(dir)); err != nil || !reflect.DeepEqual(now, []encryption.Key{keys[1], keys[0]}) {
			t.Errorf("after the second step: %v, %v", now, err)
		}
	}
}

func TestEncryptionConfig(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	secret := base64.StdEncoding.EncodeToString(make([]byte, 32))
	good := head + "- resources: [events]\n  providers: [{identity: {}}]\n" +
		"- resources: [secrets, deployments.apps]\n  providers:\n  - secretbox: {keys: [{name: a, secret: " + secret + "}, {name: b, secret: " + secret + "}]}\n  - aescbc: {keys: [{name: c, secret: " + secret + "}]}\n" +
		"- resources: ['*.batch']\n  providers: [{aesgcm: {keys: [{name: d, secret: " + secret + "}]}}]\n"
	rules, err := parseEncryption([]byte(good), kinds.All(), checkKMS)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rules {
		got = append(got, strings.Join(r.Prefixes, " "))
	}
	if want := "/registry/events/|/registry/secrets/ /registry/deployments/|/registry/jobs/ /registry/cronjobs/"; strings.Join(got, "|") != want || len(rules[1].Providers) != 3 {
		t.Errorf("got %s, %d providers; want %s", strings.Join(got, "|"), len(rules[1].Providers), want)
	}
	for text, want := range map[string]string{
		"kind: Pod":                       "Object 'apiVersion' is missing",
		head + "- resources: [secrets]\n": "resources[0].providers: Required value",
		head + "- resources: [secrets]\n  providers: [{aesgcm: {keys: [{name: a, secret: AAAA}]}}]\n":                          "not of the expected length",
		head + "- resources: [secrets]\n  providers: [{kms: {apiVersion: v1, name: x, endpoint: 'unix:///x', timeout: 3s}}]\n": `version "v1" of the API of key management services is not supported`,
		head + "- resources: [secrets]\n  providers: [{kms: {apiVersion: v2, name: x, endpoint: 'https://x', timeout: 3s}}]\n": "unsupported scheme",
		head + "- resources: ['*.*', secrets]\n  providers: [{identity: {}}]\n":                                                "resources[0].resources: Invalid value",
	} {
		path := filepath.Join(t.TempDir(), "encryption.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}
