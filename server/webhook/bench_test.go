package webhook

import "testing"

// BenchmarkAdmission measures a write without webhooks, and with one on this machine that allows it.
func BenchmarkAdmission(b *testing.B) {
	b.Run("none", func(b *testing.B) {
		r := newRig(b)
		a := r.createPod()
		b.ReportAllocs()
		for b.Loop() {
			if err := r.validating.Admit(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		r := newRig(b)
		r.validate(webhookSetup{answer: allow})
		a := r.createPod()
		b.ReportAllocs()
		for b.Loop() {
			if err := r.validating.Admit(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
}
