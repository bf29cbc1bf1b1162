// Package kmstest is a key management service for tests: a plugin for KMS v2 on a Unix socket, with keys in memory.
package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	kmsapi "k8s.io/kms/apis/v2"
)

// Service is a key management service. It keeps AES keys by their names.
type Service struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	// Path is the path of the service's socket.
	Path   string
	server *grpc.Server

	mu       sync.Mutex // guards what follows
	keys     map[string]cipher.AEAD
	now      string // the name of the key that Encrypt uses
	status   *kmsapi.StatusResponse
	decrypts int
	answer   func(*kmsapi.EncryptResponse)
}

// Start starts a service, which is stopped when the test ends.
func Start(t testing.TB) *Service {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Service{Path: filepath.Join(dir, "s"), keys: map[string]cipher.AEAD{}}
	s.Rotate(t, "one")
	s.Serve(t)
	t.Cleanup(s.Stop)
	return s
}

// Serve listens on the socket. It may be called again after Stop.
func (s *Service) Serve(t testing.TB) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", s.Path)
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(s.server, s)
	go func() { _ = s.server.Serve(l) }()
}

// Stop stops the service; its keys are kept for the next Serve.
func (s *Service) Stop() { s.server.Stop() }

// Rotate makes a new key the one that encrypts.
func (s *Service) Rotate(t testing.TB, name string) {
	t.Helper()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	block, err := aes.NewCipher(secret)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[name], s.now = aead, name
	s.status = &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: name}
}

// Lie changes the status of the service, and sets a function that changes its responses to Encrypt. Either may be nil.
func (s *Service) Lie(status func(*kmsapi.StatusResponse), answer func(*kmsapi.EncryptResponse)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer = answer; status != nil {
		status(s.status)
	}
}

// Decrypts returns the number of calls of Decrypt.
func (s *Service) Decrypts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decrypts
}

// Status returns the status of the service.
func (s *Service) Status(context.Context, *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return proto.Clone(s.status).(*kmsapi.StatusResponse), nil
}

// Encrypt encrypts with the newest key.
func (s *Service) Encrypt(_ context.Context, q *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nonce := make([]byte, 12)
	_, _ = rand.Read(nonce)
	a := &kmsapi.EncryptResponse{
		Ciphertext: s.keys[s.now].Seal(nonce, nonce, q.Plaintext, nil), KeyId: s.now,
		Annotations: map[string][]byte{"version.example.com": []byte("1")},
	}
	if s.answer != nil {
		s.answer(a)
	}
	return a, nil
}

// Decrypt decrypts with the key that the request names.
func (s *Service) Decrypt(_ context.Context, q *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decrypts++
	key := s.keys[q.KeyId]
	if key == nil || string(q.Annotations["version.example.com"]) != "1" || len(q.Ciphertext) < 12 {
		return nil, fmt.Errorf("no key %q, annotations %v", q.KeyId, q.Annotations)
	}
	plain, err := key.Open(nil, q.Ciphertext[:12], q.Ciphertext[12:], nil)
	return &kmsapi.DecryptResponse{Plaintext: plain}, err
}
