package website

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "example.com/operator/website/api/v1"
	"example.com/operator/website/api/v1beta1"

	// The one line that differs from a suite on kube-apiserver and etcd, where it is "sigs.k8s.io/controller-runtime/pkg/envtest".
	"proa.dev/proatest/envtest"
)

var (
	testEnv   *envtest.Environment
	k8sClient client.Client

	// dnsIsDown makes it impossible to withdraw host names.
	dnsIsDown atomic.Bool
)

func TestMain(m *testing.M) {
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runSuite runs the tests with the operator and their own control plane.
func runSuite(m *testing.M) (code int, err error) {
	if err := errors.Join(v1.AddToScheme(scheme.Scheme), v1beta1.AddToScheme(scheme.Scheme)); err != nil {
		return 0, err
	}
	testEnv = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("config", "webhook")}},
	}
	cfg, err := testEnv.Start()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, testEnv.Stop()) }()
	if k8sClient, err = client.New(cfg, client.Options{Scheme: scheme.Scheme}); err != nil {
		return 0, err
	}

	hooks := &testEnv.WebhookInstallOptions
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:         scheme.Scheme,
		WebhookServer:  webhook.NewServer(webhook.Options{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "website.example.com", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return 0, err
	}
	reconciler := &Reconciler{Client: mgr.GetClient(), Withdraw: func(context.Context, string) error {
		if dnsIsDown.Load() {
			return errors.New("the DNS server does not answer")
		}
		return nil
	}}
	if err := errors.Join(reconciler.SetupWithManager(mgr), SetupWebhooksWithManager(mgr)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	if err := waitForWebhooks(net.JoinHostPort(hooks.LocalServingHost, fmt.Sprint(hooks.LocalServingPort))); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// waitForWebhooks waits until the webhook server of the manager accepts connections.
func waitForWebhooks(addr string) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}
