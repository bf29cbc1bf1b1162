// Package kms encrypts values with keys that a key management service keeps: it speaks to a plugin over KMS v2, which is gRPC on a Unix socket.
//
// Values are not sent to the plugin. They are encrypted here, each with a key of its own that is derived from a seed, and the plugin encrypts the
// seed, which is stored with the value. One seed is used until the plugin has another key. The layout is that of Kubernetes, so that either can
// read what the other has written.
package kms

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	stored "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	kmsapi "k8s.io/kms/apis/v2"

	"proa.dev/store/encryption"
)

const (
	// probeInterval is how often a plugin is asked for its status, and retryInterval while it does not work.
	probeInterval = time.Minute
	retryInterval = 10 * time.Second
	// writeLife is how long a seed may be used to write after the last status that was well.
	writeLife = 3 * time.Minute
	// maxSeeds bounds the seeds that are kept. There is one for each key of the plugin and each start of a server.
	maxSeeds = 10000
	// defaultTimeout bounds a call when the configuration does not.
	defaultTimeout = 3 * time.Second
	// maxMessage bounds what a plugin may answer.
	maxMessage = 64 << 10
)

// Config says which plugin is used.
type Config struct {
	// Name is the name of the provider. It is stored with every value.
	Name string
	// Endpoint is a Unix socket, such as unix:///run/kms.sock.
	Endpoint string
	Timeout  time.Duration
	// Observe is told about every call; nil for nobody.
	Observe func(provider, method, code string, took time.Duration)
}

// Plugin is a key management service. It is safe for concurrent use.
type Plugin struct {
	Config
	conn   *grpc.ClientConn
	client kmsapi.KeyManagementServiceClient
	write  atomic.Pointer[writeKey]
	health atomic.Pointer[error]

	mu      sync.Mutex // guards what follows
	version string     // of the API that the plugin speaks; it may not change
	seeds   map[[sha256.Size]byte]source
}

// writeKey is the seed with which values are encrypted now.
type writeKey struct {
	source
	object *stored.EncryptedObject // without data
	until  time.Time
}

var errNotAsked = errors.New("the plugin has not been asked yet")

// New makes the client of a plugin. It is not connected before it is needed.
func New(c Config) (*Plugin, error) {
	path, isUnix := strings.CutPrefix(c.Endpoint, "unix://")
	if !isUnix || path == "" {
		return nil, fmt.Errorf("kms %s: %q is not a Unix socket; it must begin with unix://", c.Name, c.Endpoint)
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	conn, err := grpc.NewClient("passthrough:///kms", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, MaxDelay: time.Second}, MinConnectTimeout: time.Second}),
		grpc.WithAuthority("localhost"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, fmt.Errorf("kms %s: %w", c.Name, err)
	}
	p := &Plugin{Config: c, conn: conn, client: kmsapi.NewKeyManagementServiceClient(conn), seeds: map[[sha256.Size]byte]source{}}
	p.health.Store(&errNotAsked)
	return p, nil
}

// Close ends the connection.
func (p *Plugin) Close() { _ = p.conn.Close() }

// Health is what the last status was; nil when it was well.
func (p *Plugin) Health() error { return *p.health.Load() }

// Run asks the plugin for its status until ctx ends. changed is called when the plugin stops to work, with the reason, and when it works again.
func (p *Plugin) Run(ctx context.Context, changed func(err error)) {
	for {
		before := p.Health()
		pause := probeInterval
		if before != nil {
			pause = retryInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if err := p.Probe(ctx); ctx.Err() == nil && (err == nil) != (before == nil) {
			changed(err)
		}
	}
}

// Probe asks the plugin for its status, and takes a new seed when its key has changed.
func (p *Plugin) Probe(ctx context.Context) error {
	err := p.probe(ctx, time.Now())
	if err != nil {
		err = fmt.Errorf("kms %s: %w", p.Name, err)
	}
	p.health.Store(&err)
	return err
}

func (p *Plugin) probe(ctx context.Context, now time.Time) error {
	got, err := call(ctx, p, "Status", p.client.Status, &kmsapi.StatusRequest{})
	if err != nil {
		return err
	}
	if got.Healthz != "ok" {
		return fmt.Errorf("the plugin says it is not well: %s", got.Healthz)
	}
	if err := p.checkVersion(got.Version); err != nil {
		return err
	}
	if err := checkKeyID(got.KeyId); err != nil {
		return err
	}
	if have := p.write.Load(); have != nil && have.object.KeyID == got.KeyId {
		next := *have
		next.until = now.Add(writeLife)
		p.write.Store(&next)
		return nil
	}
	return p.renew(ctx, got.KeyId, now)
}

// checkVersion refuses other versions of the API, and one that changes.
func (p *Plugin) checkVersion(version string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version != "v2" && version != "v2beta1" {
		return fmt.Errorf("the plugin speaks version %q of the API, not v2", version)
	}
	if p.version != "" && p.version != version {
		return fmt.Errorf("the plugin speaks version %q of the API, and %q before", version, p.version)
	}
	p.version = version
	return nil
}

// renew makes a new seed and has it encrypted by the key with that name.
func (p *Plugin) renew(ctx context.Context, key string, now time.Time) error {
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails: the process ends if the kernel has no randomness
	got, err := call(ctx, p, "Encrypt", p.client.Encrypt, &kmsapi.EncryptRequest{Plaintext: seed, Uid: uid()})
	if err != nil {
		return fmt.Errorf("encrypt a new seed: %w", err)
	}
	if got.KeyId != key {
		return errors.New("the plugin encrypts with another key than its status names")
	}
	o := &stored.EncryptedObject{
		KeyID: got.KeyId, EncryptedDEKSource: got.Ciphertext, Annotations: got.Annotations,
		EncryptedDEKSourceType: stored.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED,
	}
	if err := check(o); err != nil {
		return err
	}
	s := source{secret: seed, seed: true}
	p.keep(o, s)
	p.write.Store(&writeKey{source: s, object: o, until: now.Add(writeLife)})
	return nil
}

// keep remembers a seed, so that the plugin is not asked again.
func (p *Plugin) keep(o *stored.EncryptedObject, s source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.seeds {
		if len(p.seeds) < maxSeeds {
			break
		}
		delete(p.seeds, k) // any: it is asked for again when it is needed
	}
	p.seeds[identity(o)] = s
}

// find returns the seed of a stored value, from memory or from the plugin.
func (p *Plugin) find(ctx context.Context, o *stored.EncryptedObject) (source, error) {
	p.mu.Lock()
	s, known := p.seeds[identity(o)]
	p.mu.Unlock()
	if known {
		return s, nil
	}
	got, err := call(ctx, p, "Decrypt", p.client.Decrypt, &kmsapi.DecryptRequest{
		Ciphertext: o.EncryptedDEKSource, KeyId: o.KeyID, Annotations: o.Annotations, Uid: uid(),
	})
	if err != nil {
		return source{}, fmt.Errorf("decrypt the key of the value: %w", err)
	}
	s = source{secret: got.Plaintext, seed: o.EncryptedDEKSourceType == stored.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED}
	if err := s.check(); err != nil {
		return source{}, err
	}
	p.keep(o, s)
	return s, nil
}

// call calls the plugin, and says in the error whether it may answer later.
func call[Q, A any](ctx context.Context, p *Plugin, method string, f func(context.Context, *Q, ...grpc.CallOption) (*A, error), q *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	began := time.Now()
	got, err := f(ctx, q)
	code := status.Code(err)
	if p.Observe != nil {
		p.Observe(p.Name, "/v2.KeyManagementService/"+method, code.String(), time.Since(began))
	}
	switch code {
	case codes.OK:
		return got, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		return nil, fmt.Errorf("%w: the plugin at %s does not answer: %w", encryption.ErrAway, p.Endpoint, err)
	}
	return nil, err
}

// uid names a call in the log of the plugin.
func uid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
