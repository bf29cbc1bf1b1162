package run

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/kinds/lib/gr"
	"proa.dev/trace/otlp"
)

// openExporter makes the exporter of spans, if there is an endpoint to send them to.
func (s *Server) openExporter(counts prometheus.Registerer) (err error) {
	if s.OTLP.URL == "" {
		return nil
	}
	s.exporter, err = otlp.NewExporter(otlp.ExporterConfig{
		Endpoint: s.OTLP, Records: s.recorder(), ClusterUID: s.clusterUID, Log: s.log,
	})
	if err != nil {
		return err
	}
	for _, m := range []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "proa_otlp_spans_sent_total",
			Help: "Spans that the OpenTelemetry receiver has taken."}, func() float64 { return float64(s.exporter.Sent()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "proa_otlp_spans_dropped_total",
			Help: "Spans that were not sent, because the OpenTelemetry receiver was too slow, could not be reached or refused them."},
			func() float64 { return float64(s.exporter.Dropped()) }),
	} {
		if err := counts.Register(m); err != nil {
			return err
		}
	}
	return nil
}

// startExporter exports spans, if there is an exporter, until ctx ends.
func (s *Server) startExporter(ctx context.Context, wg *sync.WaitGroup) {
	if s.exporter != nil {
		wg.Go(func() { s.exporter.Run(ctx) })
	}
}

// clusterUID returns the UID of the namespace kube-system, by which OpenTelemetry tells clusters apart; empty if it cannot be read.
func (s *Server) clusterUID(ctx context.Context) string {
	ns, err := s.OwnClient().Get(ctx, gr.Namespaces, "", metav1.NamespaceSystem, "")
	if err != nil {
		return ""
	}
	return string(ns.GetUID())
}
