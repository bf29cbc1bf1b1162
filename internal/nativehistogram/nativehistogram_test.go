package nativehistogram

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

func TestBothKindsOfBuckets(t *testing.T) {
	h := New(prometheus.HistogramOpts{Name: "h"})
	h.Observe(0.003)
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	if got := m.GetHistogram(); len(got.GetBucket()) != len(prometheus.DefBuckets) || len(got.GetPositiveSpan()) == 0 {
		t.Errorf("%v", got)
	}
}

func TestTextHasClassicBucketsOnly(t *testing.T) {
	reg := prometheus.NewRegistry()
	v := NewVec(prometheus.HistogramOpts{Name: "h", Buckets: []float64{1, 2}}, []string{"l"})
	v.WithLabelValues("x").Observe(1.5)
	reg.MustRegister(v)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	if text := w.Body.String(); strings.Count(text, "h_bucket{") != 3 || !strings.Contains(text, `h_bucket{l="x",le="2"} 1`) {
		t.Error(text)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := New(prometheus.HistogramOpts{Name: "h"})
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(0.0031)
	}
}

func BenchmarkObserveClassic(b *testing.B) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h"})
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(0.0031)
	}
}

// BenchmarkSeries measures the memory of a series with 20 used buckets.
func BenchmarkSeries(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		h := New(prometheus.HistogramOpts{Name: "h"})
		for x := 0.001; x < 0.007; x *= 1.1 {
			h.Observe(x)
		}
	}
}
