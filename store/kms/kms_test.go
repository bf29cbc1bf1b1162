package kms

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	stored "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	kmsapi "k8s.io/kms/apis/v2"

	"proa.dev/store/encryption"
	"proa.dev/store/kms/kmstest"
)

// readyPlugin returns a plugin client that has already made its first seed.
func readyPlugin(t *testing.T, s *kmstest.Service) *Plugin {
	t.Helper()
	p := newPlugin(t, s)
	if err := p.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func newPlugin(t *testing.T, s *kmstest.Service) *Plugin {
	t.Helper()
	p, err := New(Config{Name: "vault", Endpoint: "unix://" + s.Path, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

const key = "/registry/secrets/default/a"

func open(t *testing.T, p *Plugin, sealed []byte) (string, bool) {
	t.Helper()
	got, stale, err := p.Open(t.Context(), key, sealed)
	if err != nil {
		t.Fatal(err)
	}
	return string(got), stale
}

func TestSeal(t *testing.T) {
	s := kmstest.Start(t)
	p := readyPlugin(t, s)
	sealed, err := p.Seal(t.Context(), key, []byte("swordfish"))
	if err != nil || bytes.Contains(sealed, []byte("swordfish")) {
		t.Fatalf("got %q, %v", sealed, err)
	}
	again, err := p.Seal(t.Context(), key, []byte("swordfish"))
	if err != nil || bytes.Equal(sealed, again) {
		t.Errorf("the same value twice: %v", err)
	}
	if got, stale := open(t, p, sealed); got != "swordfish" || stale {
		t.Errorf("got %q, stale %t", got, stale)
	}
	if s.Decrypts() != 0 {
		t.Errorf("the plugin was called %d times for a known seed", s.Decrypts())
	}
	// Another server, or this one after a restart, decrypts each seed once.
	other := readyPlugin(t, s)
	for _, v := range [][]byte{sealed, again, sealed} {
		if got, stale := open(t, other, v); got != "swordfish" || stale {
			t.Errorf("got %q, stale %t", got, stale)
		}
	}
	if s.Decrypts() != 1 {
		t.Errorf("the plugin was called %d times", s.Decrypts())
	}
	if _, _, err := p.Open(t.Context(), key+"b", sealed); err == nil {
		t.Error("a value was read at another place")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if got, _, err := p.Open(t.Context(), key, bad); err == nil && string(got) != "swordfish" {
			t.Errorf("byte %d changed: %q", i, got)
		}
	}
}

func TestRotation(t *testing.T) {
	s := kmstest.Start(t)
	p := readyPlugin(t, s)
	old, err := p.Seal(t.Context(), key, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	first := p.write.Load()
	if err := p.Probe(t.Context()); err != nil || &p.write.Load().object.EncryptedDEKSource[0] != &first.object.EncryptedDEKSource[0] {
		t.Errorf("a seed was replaced while the key is the same: %v", err)
	}
	s.Rotate(t, "two")
	if err := p.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, stale := open(t, p, old); got != "v" || !stale {
		t.Errorf("got %q, stale %t", got, stale)
	}
	next, err := p.Seal(t.Context(), key, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	if got, stale := open(t, p, next); got != "v" || stale {
		t.Errorf("got %q, stale %t", got, stale)
	}
	var o stored.EncryptedObject
	if err := proto.Unmarshal(next, &o); err != nil || o.KeyID != "two" {
		t.Errorf("stored with key %q, %v", o.KeyID, err)
	}
}

// TestPluginUnavailable stops the service: values with known seeds can still be read, and values can still be written for
// some time.
func TestPluginUnavailable(t *testing.T) {
	s := kmstest.Start(t)
	p, other := readyPlugin(t, s), newPlugin(t, s)
	sealed, err := p.Seal(t.Context(), key, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := p.Probe(t.Context()); !errors.Is(err, encryption.ErrKMSUnavailable) || !errors.Is(p.Health(), encryption.ErrKMSUnavailable) {
		t.Errorf("got %v", err)
	}
	if got, stale := open(t, p, sealed); got != "v" || stale {
		t.Errorf("got %q, stale %t", got, stale)
	}
	if _, err := p.Seal(t.Context(), key, []byte("v")); err != nil {
		t.Errorf("the seed may still be used: %v", err)
	}
	late := *p.write.Load()
	late.until = time.Now().Add(-time.Second)
	p.write.Store(&late)
	if _, err := p.Seal(t.Context(), key, []byte("v")); err == nil || !strings.Contains(err.Error(), "3m0s old: kms vault") {
		t.Errorf("got %v", err)
	}
	if _, err := other.Seal(t.Context(), key, []byte("v")); err == nil {
		t.Error("a plugin that was never there encrypts")
	}
	if _, _, err := other.Open(t.Context(), key, sealed); !errors.Is(err, encryption.ErrKMSUnavailable) {
		t.Errorf("got %v", err)
	}
	s.Serve(t)
	for deadline := time.Now().Add(time.Minute); other.Probe(t.Context()) != nil ||
		p.Probe(t.Context()) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(other.Health(), p.Health())
		}
	}
	if got, _ := open(t, other, sealed); got != "v" {
		t.Errorf("got %q", got)
	}
	if _, err := p.Seal(t.Context(), key, []byte("v")); err != nil {
		t.Error(err)
	}
}

// TestInvalidPluginResponses checks that invalid responses of a plugin are refused.
func TestInvalidPluginResponses(t *testing.T) {
	for name, c := range map[string]struct {
		status   func(*kmsapi.StatusResponse)
		response func(*kmsapi.EncryptResponse)
		want     string
	}{
		"ill":             {status: func(r *kmsapi.StatusResponse) { r.Healthz = "the vault is sealed" }, want: "the vault is sealed"},
		"old":             {status: func(r *kmsapi.StatusResponse) { r.Version = "v1beta1" }, want: `version "v1beta1"`},
		"nameless":        {status: func(r *kmsapi.StatusResponse) { r.KeyId = "" }, want: "has 0 bytes"},
		"verbose":         {status: func(r *kmsapi.StatusResponse) { r.KeyId = strings.Repeat("x", 1025) }, want: "has 1025 bytes"},
		"another key":     {response: func(r *kmsapi.EncryptResponse) { r.KeyId = "other" }, want: "another key than its status"},
		"no ciphertext":   {response: func(r *kmsapi.EncryptResponse) { r.Ciphertext = nil }, want: "has 0 bytes"},
		"long ciphertext": {response: func(r *kmsapi.EncryptResponse) { r.Ciphertext = make([]byte, 1025) }, want: "has 1025 bytes"},
		"bad annotation":  {response: func(r *kmsapi.EncryptResponse) { r.Annotations = map[string][]byte{"x": nil} }, want: "annotations"},
		"annotations": {response: func(r *kmsapi.EncryptResponse) { r.Annotations = map[string][]byte{"x.y": make([]byte, 33<<10)} },
			want: "the annotations have"},
		"huge response": {response: func(r *kmsapi.EncryptResponse) { r.Annotations = map[string][]byte{"x.y": make([]byte, 1<<20)} },
			want: "received message larger"},
	} {
		s := kmstest.Start(t)
		s.Lie(c.status, c.response)
		p := newPlugin(t, s)
		if err := p.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if _, err := p.Seal(t.Context(), key, []byte("v")); err == nil {
			t.Errorf("%s: it encrypts", name)
		}
	}
	s := kmstest.Start(t)
	p := readyPlugin(t, s)
	s.Lie(func(r *kmsapi.StatusResponse) { r.Version = "v2beta1" }, nil)
	if err := p.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), `and "v2" before`) {
		t.Errorf("got %v", err)
	}
	for _, at := range []string{"", "/run/kms.sock", "unix://", "https://kms.example.com"} {
		if _, err := New(Config{Name: "x", Endpoint: at}); err == nil {
			t.Errorf("%q was taken for a socket", at)
		}
	}
}

// TestCompatibleWithUpstream checks that upstream's library can read our values, and that we can read its values, with seeds
// and with keys.
func TestCompatibleWithUpstream(t *testing.T) {
	s := kmstest.Start(t)
	ours := readyPlugin(t, s)
	remote, err := kmsv2.NewGRPCService(t.Context(), "unix://"+s.Path, "vault", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, seeds := range []bool{true, false} {
		transformer, object, cacheKey, err := kmsv2.GenerateTransformer(t.Context(), "uid", remote, seeds)
		if err != nil {
			t.Fatal(err)
		}
		theirs := kmsv2.NewEnvelopeTransformer(remote, "vault", func() (kmsv2.State, error) {
			return kmsv2.State{
				Transformer: transformer, EncryptedObjectKeyID: object.KeyID, EncryptedObjectEncryptedDEKSource: object.EncryptedDEKSource,
				EncryptedObjectAnnotations: object.Annotations, EncryptedObjectEncryptedDEKSourceType: object.EncryptedDEKSourceType,
				ExpirationTimestamp: time.Now().Add(time.Hour), CacheKey: cacheKey,
			}, nil
		}, "id")
		written, err := theirs.TransformToStorage(t.Context(), []byte("of upstream"), value.DefaultContext(key))
		if err != nil {
			t.Fatal(err)
		}
		if got, stale := open(t, ours, written); got != "of upstream" || stale == seeds {
			t.Errorf("seeds %t: got %q, stale %t", seeds, got, stale)
		}
		sealed, err := ours.Seal(t.Context(), key, []byte("of ours"))
		if err != nil {
			t.Fatal(err)
		}
		got, stale, err := theirs.TransformFromStorage(t.Context(), sealed, value.DefaultContext(key))
		if err != nil || string(got) != "of ours" || stale == seeds {
			t.Errorf("seeds %t: got %q, stale %t, %v", seeds, got, stale, err)
		}
	}
}

// FuzzOpen decrypts arbitrary stored values.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0x01, 0x00, 0x12, 0x01, 0x61, 0x1a, 0x01, 0x62})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		p, err := New(Config{Name: "vault", Endpoint: "unix:///nowhere/at/all", Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		o := &stored.EncryptedObject{}
		if proto.Unmarshal(sealed, o) == nil { // as if the plugin had decrypted the seed
			p.cacheSeed(o, source{secret: make([]byte, 32), seed: o.EncryptedDEKSourceType == 1})
		}
		if got, _, err := p.Open(t.Context(), key, sealed); err == nil {
			t.Errorf("%q was opened as %q", sealed, got)
		}
	})
}

// TestSeedsAreBounded checks that a plugin cannot return seeds that are too short to be safe or too large to be kept.
func TestSeedsAreBounded(t *testing.T) {
	for size, ok := range map[int]bool{0: false, seedSize - 1: false, seedSize: true, maxSource: true, maxSource + 1: false} {
		if err := (source{secret: make([]byte, size), seed: true}).check(); (err == nil) != ok {
			t.Errorf("a seed of %d bytes: %v", size, err)
		}
	}
}
