package run

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"proa.dev/control"
	"proa.dev/run/parthealth"
	"proa.dev/run/pki"
)

// rotateEvery is the time between checks whether certificates must be renewed.
const rotateEvery = 24 * time.Hour

// openPKI loads or creates the keys and certificates of the cluster, and writes the administrator's kubeconfig.
func (s *Server) openPKI(ctx context.Context) (err error) {
	if s.pki, err = pki.Ensure(filepath.Join(s.DataDir, "pki"), s.certificateNames()); err != nil {
		return err
	}
	s.logAuthorityNotices(ctx)
	return s.writeKubeconfig()
}

func (s *Server) writeKubeconfig() error {
	return pki.WriteKubeconfig(s.Kubeconfig(), s.pki.AdminKubeconfig(s.URL(), s.Name))
}

// logAuthorityNotices logs changes of the certificate authorities, such as the start of a rotation.
func (s *Server) logAuthorityNotices(ctx context.Context) {
	for _, n := range s.pki.Notices() {
		level := slog.LevelInfo
		if n.Urgent {
			level = slog.LevelWarn
		}
		s.log.Log(ctx, level, "a certificate authority has changed", "change", n.Text)
	}
}

// rotate renews certificates, and the authorities that sign them, before they expire, until ctx ends.
func (s *Server) rotate(ctx context.Context) {
	tick := time.NewTicker(rotateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.renewCertificates(ctx)
		}
	}
}

// renewCertificates renews what must be renewed now, and uses keys and authorities that were replaced, also by hand.
func (s *Server) renewCertificates(ctx context.Context) {
	before, agents := s.extensionTrust(), s.agentAuthorities()
	renewed, err := s.pki.Rotate()
	if err != nil {
		s.log.ErrorContext(ctx, "cannot renew certificates", "err", err)
		return
	}
	s.logAuthorityNotices(ctx)
	if err := s.joinCluster(ctx); err != nil {
		s.log.ErrorContext(ctx, "the keys or settings of this server are not those of the servers that share its etcd", "err", err)
	}
	if len(renewed) > 0 {
		s.log.InfoContext(ctx, "renewed certificates", "names", renewed)
	}
	// Authorities and keys may have been replaced too, by this server or by an administrator.
	s.auth.SetTrust(s.pki.CA().Pool, s.pki.FrontProxyCA().Pool)
	if err := s.auth.SetKeys(s.pki.ServiceAccountKey(), s.pki.ServiceAccountPublicKeys()...); err != nil {
		s.log.ErrorContext(ctx, "cannot use the keys of service accounts", "err", err)
	}
	now := s.extensionTrust()
	moved := now.Clients != before.Clients || now.Proxies != before.Proxies || s.agentAuthorities() != agents
	if moved {
		s.trustChanged.notify()
	}
	if moved || len(renewed) > 0 {
		if err := s.writeKubeconfig(); err != nil {
			s.log.ErrorContext(ctx, "cannot write the administrator's kubeconfig anew", "err", err)
		}
	}
}

// publishers lists the controllers that publish the bundle of certificate authorities.
func publishers() []string {
	return []string{
		"root-ca-cert-publisher", "kube-apiserver-serving-clustertrustbundle-publisher", "kubelet-serving-clustertrustbundle-publisher",
		"tokens-controller", "cluster-authentication-trust-controller",
	}
}

// runController runs a controller until ctx ends. One that publishes the bundle is restarted when the bundle changes, and so
// reconciles every object.
func (s *Server) runController(ctx context.Context, ctl control.Controller) error {
	runOnce := func(ctx context.Context) error {
		return control.Run(ctx, s.log, s.controllerClient(ctl.Name), ctl, s.queues)
	}
	if !slices.Contains(publishers(), ctl.Name) {
		return runOnce(ctx)
	}
	for ctx.Err() == nil {
		if err := parthealth.Until(ctx, s.trustChanged.changed(), runOnce); err != nil {
			return err
		}
	}
	return nil
}
