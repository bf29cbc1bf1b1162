// Package nativehistogram makes Prometheus histograms that have native buckets beside their classic ones. A scraper that
// asks for the protobuf format gets both; one that asks for text gets the classic buckets only.
package nativehistogram

import "github.com/prometheus/client_golang/prometheus"

const (
	// growth is the factor between the bounds of two native buckets: a quantile is off by at most 10 percent.
	growth = 1.1
	// maxBuckets limits the native buckets of one series. A series that needs more gets wider buckets.
	maxBuckets = 160
)

// With returns the options of a histogram with native buckets added.
func With(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = growth, maxBuckets
	if o.Buckets == nil {
		o.Buckets = prometheus.DefBuckets // without this, a histogram with native buckets has no classic ones
	}
	return o
}

// New returns a histogram without labels.
func New(o prometheus.HistogramOpts) prometheus.Histogram { return prometheus.NewHistogram(With(o)) }

// NewVec returns a histogram with labels.
func NewVec(o prometheus.HistogramOpts, labels []string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(With(o), labels)
}
