package connlimit

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
)

// BenchmarkRequest is what the budget costs a request of a connection that has been authenticated.
func BenchmarkRequest(b *testing.B) {
	budget := New(1<<16, slog.New(slog.DiscardHandler))
	c := budget.admit(&fakeConn{from: "10.0.0.1:1"}, "test", Unauthenticated)
	ctx := WithConn(context.Background(), c)
	for range 4 { // as many as a request of the API has
		ctx = context.WithValue(ctx, http.ServerContextKey, nil)
	}
	groups := []string{"system:authenticated"}
	b.ReportAllocs()
	for b.Loop() {
		ConnState(c, http.StateActive)
		FromContext(ctx).Authenticate("alice", groups)
		ConnState(c, http.StateIdle)
	}
}

// BenchmarkAdmitIntoFullShare is what a connection costs while another client holds its whole share.
func BenchmarkAdmitIntoFullShare(b *testing.B) {
	budget := New(1<<16, slog.New(slog.DiscardHandler))
	for range 1 << 14 {
		budget.admit(&fakeConn{from: "10.0.0.1:1"}, "test", Unauthenticated)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = budget.admit(&fakeConn{from: "10.0.0.2:1"}, "test", Unauthenticated)
	}
}
