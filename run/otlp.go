package run

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/kinds/lib/gr"
	"proa.dev/trace/otlp"
)

// openExporter makes the exporter of spans, if there is an endpoint to send them to.
func (s *Server) openExporter(counts *prometheus.Registry) (err error) {
	if s.OTLP.URL == "" {
		return nil
	}
	config := otlp.ExporterConfig{Endpoint: s.OTLP, Records: s.recorder(), ClusterUID: s.clusterUID, Log: s.log}
	config.NodeUID = func(name string) string { return string(s.pipeline.State.CachedUID(gr.Nodes, "", name)) }
	if s.exporter, err = otlp.NewExporter(config); err != nil {
		return err
	}
	counts.MustRegister(s.exporter.Collectors()...)
	return nil
}

// clusterUID returns the UID of the namespace kube-system, by which OpenTelemetry tells clusters apart; empty if it cannot be read.
func (s *Server) clusterUID(ctx context.Context) string {
	ns, err := s.OwnClient().Get(ctx, gr.Namespaces, "", metav1.NamespaceSystem, "")
	if err != nil {
		return ""
	}
	return string(ns.GetUID())
}
