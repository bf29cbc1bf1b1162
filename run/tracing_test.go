package run

import "testing"

// TestTracesAndExplanationsShareLimits checks that there is one source of traces, whose limits count for all who read them.
func TestTracesAndExplanationsShareLimits(t *testing.T) {
	s := &Server{}
	if s.traceSource() != s.traceSource() {
		t.Error("each kind has a source of its own")
	}
}
