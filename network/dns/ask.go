package dns

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// askTimeout is how long a server may take to answer, askTimes how often Ask asks.
const (
	askTimeout = time.Second
	askTimes   = 2
)

// Ask asks a server for the addresses of a name, and returns why there is no answer. It starts no goroutine, so that it
// can be used in the network namespace of a thread.
func Ask(ctx context.Context, server netip.Addr, name string) (err error) {
	kind := dns.TypeA
	if server.Is6() {
		kind = dns.TypeAAAA
	}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	client := &dns.Client{Timeout: askTimeout}
	for range askTimes {
		var answer *dns.Msg
		if answer, _, err = client.ExchangeContext(ctx, question, netip.AddrPortFrom(server, 53).String()); err != nil {
			continue
		}
		if answer.Rcode != dns.RcodeSuccess || len(answer.Answer) == 0 {
			return fmt.Errorf("it answers %s with %d addresses for %s", dns.RcodeToString[answer.Rcode], len(answer.Answer), name)
		}
		return nil
	}
	return err
}
