package run

import (
	"testing"

	"proa.dev/server/httpapi"
)

func TestRequestMemory(t *testing.T) {
	c := Default()
	if got := c.requestMemory(); got < leastRequestMemory || got > mostRequestMemory || httpapi.DefaultMemory < leastRequestMemory {
		t.Errorf("by itself: %d", got)
	}
	if c.RequestMemory = 64 << 20; c.requestMemory() != 64<<20 {
		t.Error("what is set does not count")
	}
}
