package run

import (
	"log/slog"
	"testing"

	"proa.dev/run/settings"
)

// TestHTTP2ServerSetting checks that net/http serves HTTP/2 only with the setting http2=std, and with limits then.
func TestHTTP2ServerSetting(t *testing.T) {
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
