package server

import (
	"fmt"
	"testing"
	"time"

	"proa.dev/hop"
)

// BenchmarkCreate is one write after the other through the pipeline, without HTTP. It reports where the time goes.
func BenchmarkCreate(b *testing.B) {
	r := newRig(b)
	r.Recorder = hop.NewRecorder(1 << 16)
	c := r.Client(r.who)
	var sum [hop.Count + 1]time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		out, err := c.Create(b.Context(), mapsOf(), configMap(fmt.Sprint("c", n)))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for _, rec := range r.Recorder.Of(out.GetUID()) {
			for h, d := range rec.Took {
				sum[h] += d
			}
		}
		r.Recorder = hop.NewRecorder(1 << 4)
		b.StartTimer()
	}
	for h := hop.Authenticate; h <= hop.Commit; h++ {
		b.ReportMetric(float64(sum[h].Microseconds())/float64(b.N), h.String()+"-us/op")
	}
}

// BenchmarkGet is one fresh read after the other.
func BenchmarkGet(b *testing.B) {
	r := newRig(b)
	r.create(mapsOf(), configMap("x"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ask("get", "configmaps", "ns", "x", nil); err != nil {
			b.Fatal(err)
		}
	}
}
