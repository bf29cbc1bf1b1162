package peerrecords

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/trace"
)

const (
	// askTimeout bounds all questions about one trace, and rounds is how often each server is asked: the first answers may name objects
	// about which others know more.
	askTimeout = time.Second
	rounds     = 2
	// maxPeers is how many servers are asked.
	maxPeers = 16
	// serverName is a name for which the serving certificates of all servers are valid.
	serverName = "kubernetes.default.svc"
)

// Missing is a server whose records could not be read.
type Missing struct {
	// Text names the server, and says what is wrong with it.
	Text string
	// Until is when the server stopped; traces that begin later do not miss it. It is zero for a server that should have answered.
	Until time.Time
}

// Add returns records together with those of the other servers that belong to objects, and the servers that did not answer.
func (p *Peers) Add(ctx context.Context, local []hop.Record, objects []trace.Ref) (all []hop.Record, missing []Missing) {
	if p == nil {
		return local, nil
	}
	return p.add(ctx, local, question{Objects: objects})
}

// AddRecent returns records together with those of the other servers that belong to the objects which users have written last, at most
// limit of each server, in a namespace or in all, and the servers that did not answer.
func (p *Peers) AddRecent(ctx context.Context, local []hop.Record, namespace string, limit int) (all []hop.Record, missing []Missing) {
	if p == nil {
		return local, nil
	}
	return p.add(ctx, local, question{Recent: min(limit, maxRecent), Namespace: namespace})
}

// add asks the other servers for what belongs to a question.
func (p *Peers) add(ctx context.Context, local []hop.Record, about question) (all []hop.Record, missing []Missing) {
	if may, missing := mayAsk(ctx); !may {
		return local, missing
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	defer func() { noteSilence(ctx, missing) }()
	alive, missing := p.alive(ctx)
	all = slices.Clip(local)
	asked := map[write]bool{}
	for round := 0; round < rounds && len(alive) > 0; round++ {
		q := nextQuestion(all, about, asked)
		if round > 0 && len(q.Writes) == 0 {
			break
		}
		records, silent := p.askAll(ctx, alive, q)
		all = append(all, records...)
		for _, s := range silent {
			missing = append(missing, Missing{Text: s.text})
		}
		alive = slices.DeleteFunc(alive, func(o peer) bool {
			return slices.ContainsFunc(silent, func(s silence) bool { return s.peer == o })
		})
	}
	return all, missing
}

// alive returns the other servers that run, and what is missing because others do not, or cannot be found.
func (p *Peers) alive(ctx context.Context) (alive []peer, missing []Missing) {
	leases, err := p.Client().View(ctx, gr.Leases)
	if err != nil {
		return nil, []Missing{{Text: "all other servers: their Leases cannot be read"}}
	}
	now := time.Now()
	for _, o := range p.others(leases) {
		switch {
		case o.renewed.After(now.Add(maxSkew)):
			missing = append(missing, Missing{Text: o.String() + ": its Lease is from the future"})
		case now.Sub(o.renewed) > lifetime:
			missing = append(missing, Missing{Text: o.String() + ": it has stopped", Until: o.renewed.Add(renewal)})
		case len(alive) == maxPeers:
			missing = append(missing, Missing{Text: o.String() + ": not asked, because there are too many servers"})
		default:
			alive = append(alive, o)
		}
	}
	return alive, few(missing)
}

// few returns the first servers of which records are missing, and one more for the rest: every trace of a list names them.
func few(missing []Missing) []Missing {
	if len(missing) <= maxPeers {
		return missing
	}
	rest := Missing{Text: fmt.Sprintf("%d other servers", len(missing)-maxPeers)}
	for _, m := range missing[maxPeers:] {
		if m.Until.IsZero() { // one of them runs
			rest.Until = time.Time{}
			break
		}
		if m.Until.After(rest.Until) {
			rest.Until = m.Until
		}
	}
	return append(missing[:maxPeers:maxPeers], rest)
}

// nextQuestion returns a question with the writes too that records name and that were not asked about before.
func nextQuestion(records []hop.Record, about question, asked map[write]bool) *question {
	q := &about
	if about.Recent > 0 { // the last ones are those that began last
		records = slices.Clone(records)
		slices.SortStableFunc(records, func(a, b hop.Record) int { return a.Start.Compare(b.Start) })
	}
	for _, w := range related(records, q, maxRecords).writes {
		if len(q.Writes) < maxWrites && !asked[w] {
			asked[w] = true
			q.Writes = append(q.Writes, w)
		}
	}
	return q
}

// silence is a server that did not give all that it knows.
type silence struct {
	peer peer
	text string
}

// askAll asks servers at the same time, and returns their records in the order of the servers.
func (p *Peers) askAll(ctx context.Context, servers []peer, q *question) (records []hop.Record, silent []silence) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, nil
	}
	answers, texts := make([][]hop.Record, len(servers)), make([]string, len(servers))
	var wg sync.WaitGroup
	for i, o := range servers {
		wg.Go(func() {
			got, more, err := p.ask(ctx, o, body)
			switch {
			case err != nil:
				texts[i] = o.String() + ": " + plain(err)
			case more:
				texts[i] = o.String() + ": it has more records than one answer may have"
			}
			answers[i] = got
		})
	}
	wg.Wait()
	for i, text := range texts {
		if text != "" {
			silent = append(silent, silence{servers[i], text})
		}
	}
	return slices.Concat(answers...), silent
}

// plain returns what is wrong in words for users. What another server has sent may be quoted in it, so it is bounded.
func plain(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("it did not answer in %v", askTimeout)
	}
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err // without the URL
	}
	return hop.Printable(err.Error(), hop.MaxText)
}

// ask asks one server for records.
func (p *Peers) ask(ctx context.Context, o peer, body []byte) (records []hop.Record, more bool, err error) {
	text, err := p.send(ctx, o, body)
	if err != nil {
		return nil, false, err
	}
	return readAnswer(text, o.name, time.Now())
}

// send sends a question to one server, and returns its answer.
func (p *Peers) send(ctx context.Context, o peer, body []byte) ([]byte, error) {
	if _, err := netip.ParseAddrPort(o.address); err != nil {
		return nil, errors.New("its Lease has no valid address")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+o.address+Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %d", res.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxAnswer {
		return nil, errors.New("its answer is too large")
	}
	return text, nil
}

// dial connects to another server. The configuration is made for each connection, because certificates are renewed.
func (p *Peers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: askTimeout}, Config: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: p.CAs(), ServerName: serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c := p.Certificate()
			return &c, nil
		},
	}}
	return d.DialContext(ctx, network, address)
}
