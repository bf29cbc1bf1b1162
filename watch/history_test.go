package watch

import (
	"testing"
)

// BenchmarkHistory adds events to a history that is full.
func BenchmarkHistory(b *testing.B) {
	var h history
	for rev := range int64(historyMax) {
		h.add(&Event{Rev: rev + 1})
	}
	b.ReportAllocs()
	rev := int64(historyMax)
	for b.Loop() {
		rev++
		h.add(&Event{Rev: rev})
	}
}

// TestFullHistory: a full history takes events without copying all it has, and keeps the newest.
func TestFullHistory(t *testing.T) {
	var h history
	rev := int64(0)
	add := func() { rev++; h.add(&Event{Rev: rev}) }
	for range 3 * historyMax {
		add()
	}
	if n := testing.AllocsPerRun(1000, add); n > 2 {
		t.Errorf("each event costs %v allocations", n)
	}
	if len(h.events) != historyMax || h.floor != rev-historyMax || h.events[0].Rev != h.floor+1 {
		t.Errorf("%d events from %d on are kept, the floor is %d at %d", len(h.events), h.events[0].Rev, h.floor, rev)
	}
	if _, ok := h.after(h.floor); !ok {
		t.Error("the floor itself is not kept")
	}
	if _, ok := h.after(h.floor - 1); ok {
		t.Error("what is before the floor is said to be kept")
	}
	if cap(h.events) > 4*historyMax {
		t.Errorf("%d places for %d events", cap(h.events), len(h.events))
	}
}
