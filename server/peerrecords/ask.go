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
	all = slices.Clip(local)
	missing = p.inquire(ctx, func(ctx context.Context, n *inquiry) {
		asked := map[write]bool{}
		for round := 0; round < rounds && len(n.alive) > 0; round++ {
			q := nextQuestion(all, about, asked)
			if round > 0 && len(q.Writes) == 0 {
				return
			}
			all = append(all, slices.Concat(askAll(ctx, n, q, readRecords)...)...)
		}
	})
	return all, missing
}

// readRecords reads the records of a server from its answer.
func readRecords(o peer, body []byte) ([]hop.Record, error) {
	records, more, err := readAnswer(body, o.name, time.Now())
	if err == nil && more {
		err = errors.New("it has more records than one answer may have")
	}
	return records, err
}

// inquiry is a number of questions to the other servers, for one request.
type inquiry struct {
	peers *Peers
	// alive are the servers that are asked, in the order of their names. One that does not answer is not asked again.
	alive   []peer
	missing []Missing
}

// inquire finds the other servers and calls ask, unless the request has asked too much. It returns those that have not answered everything.
func (p *Peers) inquire(ctx context.Context, ask func(context.Context, *inquiry)) []Missing {
	if may, missing := mayAsk(ctx); !may {
		return missing
	}
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	n := &inquiry{peers: p}
	n.alive, n.missing = p.alive(ctx)
	ask(ctx, n)
	noteSilence(ctx, n.missing)
	return n.missing
}

// askAll asks all servers of an inquiry at the same time, and returns what read makes of their answers, in the order of the servers. It may
// make something of an answer and return an error too, if that is not all.
func askAll[T any](ctx context.Context, n *inquiry, q *question, read func(o peer, body []byte) (T, error)) []T {
	body, err := json.Marshal(q)
	if err != nil {
		return nil
	}
	answers, errs := make([]T, len(n.alive)), make([]error, len(n.alive))
	var wg sync.WaitGroup
	for i, o := range n.alive {
		wg.Go(func() {
			text, err := n.peers.send(ctx, o, body)
			n.peers.contacts.note(o, err, time.Now())
			if err == nil {
				answers[i], err = read(o, text)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	var left []peer
	for i, o := range n.alive {
		if errs[i] == nil {
			left = append(left, o)
		} else {
			n.missing = append(n.missing, Missing{Text: o.String() + ": " + plain(errs[i])})
		}
	}
	n.alive = left
	return answers
}

// alive returns the other servers that run, and what is missing because others do not, or cannot be found.
func (p *Peers) alive(ctx context.Context) (alive []peer, missing []Missing) {
	leases, err := p.Client().View(ctx, gr.Leases)
	if err != nil {
		return nil, []Missing{{Text: "all other servers: their Leases cannot be read"}}
	}
	now := time.Now()
	others := p.others(leases)
	if len(others) > maxPeers {
		p.contacts.sortKnownFirst(others)
	}
	for _, o := range others {
		switch {
		case o.renewed.After(now.Add(maxSkew)):
			missing = append(missing, Missing{Text: o.String() + ": its Lease is from the future"})
		case now.Sub(o.renewed) > lifetime:
			missing = append(missing, Missing{Text: o.String() + ": it has stopped", Until: o.renewed.Add(renewal)})
		case p.contacts.isPausing(o, now):
			missing = append(missing, Missing{Text: o.String() + ": it has not answered so far, and is asked again later"})
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
