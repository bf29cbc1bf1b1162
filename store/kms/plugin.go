// Package kms encrypts values with the keys of a key management service, through a KMS v2 plugin, which is a gRPC
// service on a Unix socket.
//
// Values are not sent to the plugin. They are encrypted here, each with a key of its own that is derived from a seed.
// The plugin encrypts the seed, which is stored with each value. A seed is used until the plugin has another key. The
// layout is that of Kubernetes, so either can read what the other has written.
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

	"proa.dev/internal/wait"
	"proa.dev/store/encryption"
)

const (
	// probeInterval is the interval of status requests to a plugin, and retryInterval the interval while the plugin
	// does not work.
	probeInterval = time.Minute
	retryInterval = 10 * time.Second
	// writeLife is how long a seed may be used for writes after the last healthy status.
	writeLife = 3 * time.Minute
	// maxSeeds bounds the seeds in memory. There is one for each key of the plugin and each start of a server.
	maxSeeds = 10000
	// defaultTimeout is the timeout of a call if none is configured.
	defaultTimeout = 3 * time.Second
	// maxMessage bounds the size of a response.
	maxMessage = 64 << 10
)

// Config configures the client of a plugin.
type Config struct {
	// Name is the name of the provider. It is stored with every value.
	Name string
	// Endpoint is a Unix socket, such as unix:///run/kms.sock.
	Endpoint string
	Timeout  time.Duration
	// Observe is called after every call of the plugin, for metrics; it may be nil.
	Observe func(provider, method, code string, took time.Duration)
}

// Plugin is the client of a KMS plugin. It is safe for concurrent use.
type Plugin struct {
	Config
	conn   *grpc.ClientConn
	client kmsapi.KeyManagementServiceClient
	write  atomic.Pointer[writeKey]
	health atomic.Pointer[error]

	mu      sync.Mutex // guards what follows
	version string     // the API version of the plugin; it must not change
	seeds   map[[sha256.Size]byte]source
}

// writeKey is the seed with which new values are encrypted.
type writeKey struct {
	source
	object *stored.EncryptedObject // without data
	until  time.Time
}

var errNotAsked = errors.New("the plugin has not been asked yet")

// New returns the client of a plugin. It connects with the first call.
func New(c Config) (*Plugin, error) {
	path, isUnix := strings.CutPrefix(c.Endpoint, "unix://")
	if !isUnix || path == "" {
		return nil, fmt.Errorf("kms %s: %q is not a Unix socket; it must begin with unix://", c.Name, c.Endpoint)
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	conn, err := grpc.NewClient("passthrough:///kms", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2,
			MaxDelay: time.Second}, MinConnectTimeout: time.Second}),
		grpc.WithAuthority("localhost"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithMaxHeaderListSize(maxMessage), // the text of an error is in a header
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

// Close closes the connection to the plugin.
func (p *Plugin) Close() { _ = p.conn.Close() }

// Health returns the error of the last status request; nil if the plugin is healthy.
func (p *Plugin) Health() error { return *p.health.Load() }

// Run requests the status of the plugin regularly until ctx ends. changed is called when the plugin stops working, with
// the error, and with nil when it works again.
func (p *Plugin) Run(ctx context.Context, changed func(err error)) {
	for {
		before := p.Health()
		pause := probeInterval
		if before != nil {
			pause = retryInterval
		}
		if wait.Sleep(ctx, pause) != nil {
			return
		}
		if err := p.Probe(ctx); ctx.Err() == nil && (err == nil) != (before == nil) {
			changed(err)
		}
	}
}

// Probe requests the status of the plugin, and makes a new seed if the key of the plugin has changed.
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
	return p.renewSeed(ctx, got.KeyId, now)
}

// checkVersion returns an error if the plugin has another API version than v2, or a different one than before.
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

// renewSeed makes a new seed and lets the plugin encrypt it with the key of that name.
func (p *Plugin) renewSeed(ctx context.Context, key string, now time.Time) error {
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
	p.cacheSeed(o, s)
	p.write.Store(&writeKey{source: s, object: o, until: now.Add(writeLife)})
	return nil
}

// cacheSeed caches a seed, so that the plugin need not decrypt it again.
func (p *Plugin) cacheSeed(o *stored.EncryptedObject, s source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.seeds {
		if len(p.seeds) < maxSeeds {
			break
		}
		delete(p.seeds, k) // a random one: the plugin decrypts it again when it is needed
	}
	p.seeds[identity(o)] = s
}

// seedOf returns the seed of a stored value, from the cache or from the plugin.
func (p *Plugin) seedOf(ctx context.Context, o *stored.EncryptedObject) (source, error) {
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
	p.cacheSeed(o, s)
	return s, nil
}

// call calls the plugin. If the plugin does not answer, the error is encryption.ErrKMSUnavailable.
func call[Q, A any](ctx context.Context, p *Plugin, method string, f func(context.Context, *Q, ...grpc.CallOption) (*A, error), q *Q) (*A,
	error) {
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
		return nil, fmt.Errorf("%w: the plugin at %s does not answer: %w", encryption.ErrKMSUnavailable, p.Endpoint, err)
	}
	return nil, err
}

// uid returns a random identifier of a call for the log of the plugin.
func uid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
