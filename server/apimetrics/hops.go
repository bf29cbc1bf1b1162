package apimetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"proa.dev/hop"
)

// ObserveHops publishes the time at each hop that a recorder has counted; nothing for a nil recorder.
func (m *Metrics) ObserveHops(r *hop.Recorder) {
	if r != nil {
		m.registry.MustRegister(&hops{r, prometheus.NewDesc("proa_hop_duration_seconds",
			"Time that writes, reconciles, scheduling attempts and the work of nodes spent at each of the twelve hops, waiting included, "+
				"but not for clients that do not read.",
			[]string{"hop"}, nil)})
	}
}

// hops reads the times at each hop when metrics are scraped.
type hops struct {
	recorder *hop.Recorder
	desc     *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (h *hops) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *hops) Collect(ch chan<- prometheus.Metric) {
	for at := hop.Client; at <= hop.Network; at++ {
		ch <- &hopMetric{h.desc, at.String(), h.recorder.Durations(at)}
	}
}

// hopMetric is the histogram of one hop. The constructors of the Prometheus client make histograms with classic or with native
// buckets, and this one has both.
type hopMetric struct {
	desc  *prometheus.Desc
	label string
	times *hop.Durations
}

// Desc implements prometheus.Metric.
func (m *hopMetric) Desc() *prometheus.Desc { return m.desc }

// Write implements prometheus.Metric.
func (m *hopMetric) Write(out *dto.Metric) error {
	h := &dto.Histogram{SampleCount: &m.times.Count, SampleSum: &m.times.Seconds, Schema: new(int32(hop.NativeSchema)),
		ZeroThreshold: new(prometheus.DefNativeHistogramZeroThreshold), ZeroCount: new(uint64(0))}
	for bound, n := range m.times.Classic() {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: new(bound.Seconds()), CumulativeCount: &n})
	}
	// Native buckets are runs of neighbours, and each count is the difference to the one before.
	next, before := 0, int64(0)
	for i, n := range m.times.Native() {
		if len(h.PositiveSpan) == 0 || i != next {
			gap := int32(i - next)
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &gap, Length: new(uint32(0))})
		}
		*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, int64(n)-before)
		next, before = i+1, int64(n)
	}
	if len(h.PositiveSpan) == 0 { // tells a native histogram without values from a classic one
		h.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
	out.Label, out.Histogram = []*dto.LabelPair{{Name: new("hop"), Value: &m.label}}, h
	return nil
}
