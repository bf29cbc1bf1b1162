package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Probes are the requests of other users during an attack: of a service account and of a user, which the server serves
// by different priority levels. Unauthenticated clients are served by that of the user.
type Probes struct {
	Sent, Answered int
	Refused        int // with 429
	Failed         int // not answered in time, or with something else
	Latencies      []time.Duration
}

// Both send a request every probePause over a connection that they keep, and the service account one every connectPause over a new
// connection. A request that takes longer than probeLimit has failed.
const (
	probePause   = 80 * time.Millisecond
	connectPause = 250 * time.Millisecond
	probeLimit   = time.Second
)

// Starved is how many requests were sent in vain.
func (p *Probes) Starved() int { return p.Sent - p.Answered }

// Percentile returns a percentile of the answered requests in milliseconds, by the nearest rank.
func (p *Probes) Percentile(percent int) float64 {
	if len(p.Latencies) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(p.Latencies)
	slices.Sort(sorted)
	i := (len(sorted)*percent + 99) / 100
	return float64(sorted[min(max(i-1, 0), len(sorted)-1)]) / float64(time.Millisecond)
}

// prober sends probes, and collects what becomes of them.
type prober struct {
	*Target
	account, user, fresh *http.Client

	mu     sync.Mutex
	result Probes
}

func newProber(t *Target) *prober {
	client := func(fresh bool, certificates ...tls.Certificate) *http.Client {
		return &http.Client{Timeout: probeLimit, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: t.Authority, Certificates: certificates}, ForceAttemptHTTP2: true,
			DisableKeepAlives: fresh,
		}}
	}
	return &prober{Target: t, account: client(false), user: client(false, t.Administrator), fresh: client(true)}
}

// warmUp opens the connections that are kept, and makes sure that the probe is answered while nobody attacks.
func (p *prober) warmUp() error {
	for _, client := range []*http.Client{p.account, p.user} {
		for range 10 {
			if status, err := p.get(client); err != nil || status != http.StatusOK {
				return fmt.Errorf("the probe is not answered before the attack: status %d, %w", status, err)
			}
		}
	}
	return nil
}

// close ends the connections that were kept.
func (p *prober) close() {
	p.account.CloseIdleConnections()
	p.user.CloseIdleConnections()
}

// run sends probes at a steady rate until ctx is over, however long they take, and waits for the last of them.
func (p *prober) run(ctx context.Context) Probes {
	var all sync.WaitGroup
	send := func(client *http.Client, pause time.Duration) {
		_ = every(ctx, pause, func(int) error {
			all.Go(func() { p.probe(client) })
			return nil
		})
	}
	all.Go(func() { send(p.account, probePause) })
	all.Go(func() { send(p.user, probePause) })
	all.Go(func() { send(p.fresh, connectPause) })
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

func (p *prober) probe(client *http.Client) {
	start := time.Now()
	status, err := p.get(client)
	took := time.Since(start)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Sent++
	switch {
	case err == nil && status == http.StatusOK:
		p.result.Answered++
		p.result.Latencies = append(p.result.Latencies, took)
	case status == http.StatusTooManyRequests:
		p.result.Refused++
	default:
		p.result.Failed++
	}
}

// get reads the object of the probe.
func (p *prober) get(client *http.Client) (int, error) {
	req, err := http.NewRequest(http.MethodGet, "https://"+p.Address+probeObject, nil)
	if err != nil {
		return 0, err
	}
	if client == p.user {
		req.Header.Set("Impersonate-User", probeNamespace)
	} else {
		req.Header.Set("Authorization", "Bearer "+p.ProbeToken)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
