package node

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/node/nodestatus"
)

// metrics returns the metrics of the agent together with those of Config.Metrics.
func (a *Agent) metrics() prometheus.Gatherer {
	out := a.stats.Agent()
	out.MustRegister(a.counts, a.volumes.Collector(), buildInfo(a.Version))
	out.MustRegister(certificateMetrics(a.cert, "kubelet_certificate_manager_server_ttl_seconds",
		"[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate "+
			"expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.",
		"kubelet_server_expiration_renew_errors")...)
	if a.Metrics != nil {
		out.MustRegister(a.Metrics)
	}
	return out
}

// buildInfo returns the metric that names the version of Kubernetes, such as v1.37.1, which the agent is compatible with.
func buildInfo(version string) prometheus.Collector {
	labels := prometheus.Labels{"major": "", "minor": "", "git_version": version}
	if parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3); len(parts) == 3 {
		labels["major"], labels["minor"] = parts[0], parts[1]
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "A metric with a constant '1' value labeled by major, minor and git version.", ConstLabels: labels,
	}, func() float64 { return 1 })
}

// ClientCertificateMetrics returns the metrics of the certificate by which an agent in its own process is known to the server.
func ClientCertificateMetrics(c *nodestatus.Certificate) []prometheus.Collector {
	return certificateMetrics(c, "kubelet_certificate_manager_client_ttl_seconds",
		"[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry "+
			"(negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
		"kubelet_certificate_manager_client_expiration_renew_errors")
}

// certificateMetrics returns how long a certificate is still valid, under the name ttl, and how often its renewal has failed.
func certificateMetrics(c *nodestatus.Certificate, ttl, help, failures string) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: ttl, Help: help}, func() float64 {
			if pair := c.Current(); pair != nil {
				return math.Trunc(time.Until(pair.Leaf.NotAfter).Seconds())
			}
			return math.Inf(1)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: failures, Help: "[ALPHA] Counter of certificate renewal errors."},
			func() float64 { return float64(c.Failures()) }),
	}
}
