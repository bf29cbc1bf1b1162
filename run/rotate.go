package run

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"proa.dev/control"
	"proa.dev/run/pki"
)

// rotateEvery is how often certificates are looked at.
const rotateEvery = 24 * time.Hour

// openPKI loads the keys and certificates of the cluster, and writes the administrator's kubeconfig with them.
func (s *Server) openPKI(ctx context.Context) (err error) {
	if s.pki, err = pki.Ensure(filepath.Join(s.DataDir, "pki"), s.names()); err != nil {
		return err
	}
	s.tell(ctx)
	return s.writeKubeconfig()
}

func (s *Server) writeKubeconfig() error {
	return pki.WriteKubeconfig(s.Kubeconfig(), s.pki.AdminKubeconfig(s.URL(), s.Name))
}

// tell says what is new about the authorities.
func (s *Server) tell(ctx context.Context) {
	for _, n := range s.pki.News() {
		level := slog.LevelInfo
		if n.Urgent {
			level = slog.LevelWarn
		}
		s.log.Log(ctx, level, "there is news of an authority", "news", n.Text)
	}
}

// rotate renews certificates, and the authorities that sign them, before they expire.
func (s *Server) rotate(ctx context.Context) {
	tick := time.NewTicker(rotateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.renew(ctx)
		}
	}
}

// renew does what rotate does, once.
func (s *Server) renew(ctx context.Context) {
	before, agents := s.extensionTrust(), s.agentRoot()
	renewed, err := s.pki.Rotate()
	if err != nil {
		s.log.ErrorContext(ctx, "cannot renew certificates", "err", err)
		return
	}
	s.tell(ctx)
	if len(renewed) > 0 {
		s.log.InfoContext(ctx, "renewed certificates", "names", renewed)
	}
	// Authorities and keys may have been replaced too, by us or by hand.
	s.auth.SetTrust(s.pki.CA().Pool, s.pki.FrontProxyCA().Pool)
	if err := s.auth.SetKeys(s.pki.ServiceAccountKey(), s.pki.ServiceAccountPublicKeys()...); err != nil {
		s.log.ErrorContext(ctx, "cannot take over the keys of service accounts", "err", err)
	}
	now := s.extensionTrust()
	moved := now.Clients != before.Clients || now.Proxies != before.Proxies || s.agentRoot() != agents
	if moved {
		s.trusted.change()
	}
	if moved || len(renewed) > 0 {
		if err := s.writeKubeconfig(); err != nil {
			s.log.ErrorContext(ctx, "cannot write the administrator's kubeconfig anew", "err", err)
		}
	}
}

// publishers are the controllers that tell others whom to trust.
func publishers() []string {
	return []string{
		"root-ca-cert-publisher", "kube-apiserver-serving-clustertrustbundle-publisher", "kubelet-serving-clustertrustbundle-publisher",
		"tokens-controller", "cluster-authentication-trust-controller",
	}
}

// runLoop runs a controller until ctx ends. One that publishes the bundle begins again with each bundle, and so looks at
// everything.
func (s *Server) runLoop(ctx context.Context, ctl control.Controller) error {
	loop := func(ctx context.Context) error { return control.Run(ctx, s.log, s.controller(ctl.Name), ctl, s.queues) }
	if !slices.Contains(publishers(), ctl.Name) {
		return loop(ctx)
	}
	for ctx.Err() == nil {
		if err := Until(ctx, s.trusted.next(), loop); err != nil {
			return err
		}
	}
	return nil
}

// Until calls do with a context that ends with a channel, too.
func Until(ctx context.Context, end <-chan struct{}, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		select {
		case <-end:
			stop()
		case <-ctx.Done():
		}
	})
	return do(ctx)
}

// turn tells any number of others that something has changed. The zero value is ready.
type turn struct {
	mu sync.Mutex
	c  chan struct{}
}

// next is closed at the next change.
func (t *turn) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.c == nil {
		t.c = make(chan struct{})
	}
	return t.c
}

func (t *turn) change() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.c != nil {
		close(t.c)
		t.c = nil
	}
}
