package attack

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestEveryAttackReachesAServer runs each attack, with less to send, against the server of net/http until that has answered, reset or
// closed something, or has answered a PING after all that was sent. An attack that a server never gets would pass for harmless.
func TestEveryAttackReachesAServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, attackerObjects) {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 64<<10))
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	target := &Target{Address: server.Listener.Addr().String(), Authority: x509.NewCertPool(), AttackerToken: "token"}
	target.Authority.AddCert(server.Certificate())
	for _, row := range Attacks() {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			each := min(row.each(), 100)
			row.Connections = min(row.Connections, 2)
			row.Planned = each * row.Connections
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			counts, ended := newTally(), make(chan struct{})
			go func() {
				defer close(ended)
				conduct(ctx, row, target, counts)
			}()
			for !counts.reached(row) && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			late := ctx.Err() != nil
			cancel()
			<-ended
			if late || len(counts.errors) > 0 {
				t.Errorf("sent %d of %d %s; the attacker got: %s", counts.sent.Load(), row.Planned, row.Unit, counts)
			}
		})
	}
}

// TestAttackNamesAreUnique holds that a row can be told from the others, because -only chooses by name.
func TestAttackNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, row := range Attacks() {
		if seen[row.Name] || row.Unit == "" || row.Connections == 0 || row.Planned%row.Connections != 0 {
			t.Errorf("%+v: the name is used twice, or the numbers do not fit", row)
		}
		seen[row.Name] = true
	}
}

func TestTallyString(t *testing.T) {
	t.Parallel()
	counts := newTally()
	counts.count(counts.goaways, "PROTOCOL_ERROR")
	counts.count(counts.answers, "401")
	counts.count(counts.answers, "401")
	counts.ended(true)
	counts.ended(false)
	if got, want := counts.String(), "1 open, 1 closed, GOAWAY PROTOCOL_ERROR ×1, status 401 ×2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
