// Command cmd is the manager of the operator, as it runs in a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"example.com/operator/website"
	v1 "example.com/operator/website/api/v1"
	"example.com/operator/website/api/v1beta1"
)

func main() {
	probes := flag.String("health-probe-bind-address", ":8081", "serve probes at this address")
	elect := flag.Bool("leader-elect", false, "work only while no other manager does")
	certs := flag.String("webhook-cert-path", "", "the folder with the certificate of the webhooks")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), *probes, *certs, *elect); err != nil {
		ctrl.Log.Error(err, "the manager has ended")
		os.Exit(1)
	}
}

// run runs the manager until ctx ends.
func run(ctx context.Context, probes, certs string, elect bool) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: probes, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer:  webhook.NewServer(webhook.Options{CertDir: certs}),
		LeaderElection: elect, LeaderElectionID: "website.example.com", LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	reconciler := &website.Reconciler{Client: mgr.GetClient(), Withdraw: func(_ context.Context, host string) error {
		ctrl.Log.Info("withdrawn", "host", host)
		return nil
	}}
	if err := errors.Join(
		reconciler.SetupWithManager(mgr), website.SetupWebhooksWithManager(mgr),
		mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", mgr.GetWebhookServer().StartedChecker()),
	); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
