package storeencryption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/apiserver/pkg/apis/apiserver"

	"proa.dev/internal/nativehistogram"
	"proa.dev/internal/wait"
	"proa.dev/store/encryption"
	"proa.dev/store/kms"
)

const (
	// kmsTimeout is how long a server waits for a plugin when it starts or its configuration changes, and kmsPause the
	// time between attempts.
	kmsTimeout = 30 * time.Second
	kmsPause   = 500 * time.Millisecond
)

// kmsPlugins are the key management services that the EncryptionConfiguration names.
type kmsPlugins struct {
	// ctx ends the status requests to plugins.
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	log     *slog.Logger
	latency *prometheus.HistogramVec
	// recovered is called when a plugin works again.
	recovered func()

	mu   sync.Mutex // guards what follows
	open map[kmsName]*kmsPlugin
}

// kmsName identifies a plugin.
type kmsName struct {
	name, endpoint string
	timeout        time.Duration
}

type kmsPlugin struct {
	*kms.Plugin
	stop context.CancelFunc
	used bool // it is named in the configuration that was read last
}

func newKMSPlugins(ctx context.Context, log *slog.Logger, recovered func()) *kmsPlugins {
	k := &kmsPlugins{log: log, recovered: recovered, open: map[kmsName]*kmsPlugin{}}
	k.latency = nativehistogram.NewVec(prometheus.HistogramOpts{
		Name:    "apiserver_envelope_encryption_kms_operations_latency_seconds",
		Help:    "Calls of key management services by provider, method and status code of gRPC.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
	}, []string{"provider_name", "method_name", "grpc_status_code"})
	k.ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	return k
}

// reading marks all plugins as unused, before the configuration is read and names them again.
func (k *kmsPlugins) reading() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.open {
		p.used = false
	}
}

// plugin returns the plugin of a configuration, and opens it if it is new. It waits until the plugin has a key.
func (k *kmsPlugins) plugin(ctx context.Context, c *api.KMSConfiguration) (encryption.Envelope, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := kmsName{name: c.Name, endpoint: c.Endpoint}
	if c.Timeout != nil {
		name.timeout = c.Timeout.Duration
	}
	if have := k.open[name]; have != nil {
		have.used = true
		return have.Plugin, nil
	}
	p, err := kms.New(kms.Config{Name: name.name, Endpoint: name.endpoint, Timeout: name.timeout,
		Observe: func(provider, method, code string, took time.Duration) {
			k.latency.WithLabelValues(provider, method, code).Observe(took.Seconds())
		}})
	if err != nil {
		return nil, err
	}
	if err := k.await(ctx, p); err != nil {
		p.Close()
		return nil, err
	}
	run, stop := context.WithCancel(k.ctx)
	k.open[name] = &kmsPlugin{Plugin: p, stop: stop, used: true}
	k.wg.Go(func() { k.follow(run, p) })
	return p, nil
}

// await waits until a plugin has a key.
func (k *kmsPlugins) await(ctx context.Context, p *kms.Plugin) error {
	for began, logged := time.Now(), false; ; {
		err := p.Probe(ctx)
		if err == nil {
			return nil
		}
		if time.Since(began) > kmsTimeout {
			return fmt.Errorf("%w; without it what it has encrypted cannot be read. Start the plugin, then the server", err)
		}
		if !logged {
			logged = true
			k.log.WarnContext(ctx, "waiting for a key management service", "provider", p.Name, "err", err)
		}
		if wait.Sleep(ctx, kmsPause) != nil {
			return err
		}
	}
}

// follow requests the status of a plugin until ctx ends, and logs changes.
func (k *kmsPlugins) follow(ctx context.Context, p *kms.Plugin) {
	defer p.Close()
	p.Run(ctx, func(err error) {
		if err != nil {
			k.log.ErrorContext(ctx, "a key management service does not work; nothing can be written with its keys soon", "provider", p.Name, "err", err)
			return
		}
		k.log.InfoContext(ctx, "a key management service works again", "provider", p.Name)
		k.recovered()
	})
}

// retain closes the plugins that the configuration does not name any more.
func (k *kmsPlugins) retain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range k.open {
		if !p.used {
			p.stop()
			delete(k.open, name)
		}
	}
}

// health returns the errors of plugins that do not work.
func (k *kmsPlugins) health() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, p := range k.open {
		errs = append(errs, p.Health())
	}
	return errors.Join(errs...)
}

func (k *kmsPlugins) close() {
	k.stop()
	k.wg.Wait()
}

// uncalledPlugin takes the place of a plugin when a configuration is only checked.
type uncalledPlugin struct{}

var errUncalled = errors.New("the configuration was only checked")

func (uncalledPlugin) Seal(context.Context, string, []byte) ([]byte, error) { return nil, errUncalled }

func (uncalledPlugin) Open(context.Context, string, []byte) ([]byte, bool, error) {
	return nil, false, errUncalled
}

// checkKMS checks the configuration of a plugin without connecting to it.
func checkKMS(c *api.KMSConfiguration) (encryption.Envelope, error) {
	p, err := kms.New(kms.Config{Name: c.Name, Endpoint: c.Endpoint})
	if err != nil {
		return nil, err
	}
	p.Close()
	return uncalledPlugin{}, nil
}
