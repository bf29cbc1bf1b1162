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

// TestFullHistory checks that events are added to a full history without copying it, and that the newest are kept.
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
		t.Error("the history claims to have events from before its floor")
	}
	if cap(h.events) > 4*historyMax {
		t.Errorf("%d places for %d events", cap(h.events), len(h.events))
	}
}

// TestLargeObjects checks that the history keeps fewer events of large objects.
func TestLargeObjects(t *testing.T) {
	var h history
	for rev := range int64(5000) {
		h.add(&Event{Rev: rev + 1, size: 2048})
	}
	if len(h.events) != historyBytes/2048 || h.bytes != historyBytes || h.floor != 5000-int64(len(h.events)) {
		t.Errorf("%d events with %d bytes are kept, the floor is %d", len(h.events), h.bytes, h.floor)
	}
	for rev := range int64(historyMin) {
		h.add(&Event{Rev: 5001 + rev, size: 1 << 20})
	}
	if len(h.events) != historyMin {
		t.Errorf("of very large ones %d are kept", len(h.events))
	}
}
