package run

import (
	"log/slog"
	"testing"

	"proa.dev/run/settings"
)

// TestChoiceOfHTTP2 holds that net/http speaks HTTP/2 itself only when it was chosen, and with limits then.
func TestChoiceOfHTTP2(t *testing.T) {
	for which, own := range map[string]bool{"own": true, "std": false, "": true} {
		s := &Server{Config: Config{Config: settings.Config{HTTP2: which}}, log: slog.New(slog.DiscardHandler)}
		h := s.newHTTPServer()
		if got := h.TLSNextProto["h2"] != nil; got != own {
			t.Errorf("http2=%s: served by package h2: %v", which, got)
		}
		if got := h.HTTP2 == nil; got != own {
			t.Errorf("http2=%s: net/http has limits for HTTP/2: %v", which, !got)
		}
	}
}
