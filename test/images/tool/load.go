package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// lane is a target together with a way to reach it: over connections that are kept, or over a new one for each request.
type lane struct {
	URL    string `json:"url"`
	New    bool   `json:"new"`
	client *http.Client
	host   string
	took   []time.Duration

	Sent   int            `json:"sent"`
	Failed int            `json:"failed"`
	Errors map[string]int `json:"errors,omitempty"`
	P50    float64        `json:"p50"` // milliseconds
	P99    float64        `json:"p99"`
	Max    float64        `json:"max"`
	Rate   float64        `json:"rate"` // good answers a second
}

// failure is a line about one request.
type failure struct {
	At    time.Time `json:"at"` // its start
	Took  float64   `json:"took"`
	URL   string    `json:"url"`
	New   bool      `json:"new"`
	Error string    `json:"error"`
}

// load sends requests: as many a second as -rate says, whatever becomes of those before, or as many as some workers can with
// -rate 0. A request that fails is a line of JSON at once; at the end there is a line for every lane.
func load(ctx context.Context, out io.Writer, args []string) error {
	f := flags("load")
	rate := f.Float64("rate", 100, "requests a second; 0 is as many as the workers can")
	workers := f.Int("workers", 16, "with -rate 0, how many send at once")
	last := f.Duration("for", 10*time.Second, "how long; 0 is until SIGTERM")
	eof := f.Bool("until-eof", false, "end when the input does, whatever -for says")
	timeout := f.Duration("timeout", 5*time.Second, "when to give up on a request")
	mode := f.String("connections", "both", "kept, new, or both in turn")
	host := f.String("host", "", "the host to ask for, if it is not that of the URL")
	show := f.Int("show", 2000, "how many failures to print one by one; all are counted")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return errors.New("say which URLs to ask")
	}
	if *rate < 0 || *rate > 1e5 || *workers < 1 || *workers > 1000 {
		return errors.New("-rate must be at most 100000 and -workers at most 1000")
	}
	lanes, err := lanesOf(f.Args(), *mode, *host, *timeout)
	if err != nil {
		return err
	}
	all := ctx
	if *last > 0 && !*eof {
		var cancel context.CancelFunc
		all, cancel = context.WithTimeout(ctx, *last)
		defer cancel()
	}
	if *eof {
		var cancel context.CancelFunc
		all, cancel = context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	book := newBook(out, lanes, *show)
	start := time.Now()
	if *rate == 0 {
		book.workers(all, *workers)
	} else {
		book.paced(all, *rate)
	}
	return book.close(time.Since(start))
}

func lanesOf(urls []string, mode, host string, timeout time.Duration) (lanes []*lane, err error) {
	kinds, ok := map[string][]bool{"kept": {false}, "new": {true}, "both": {false, true}}[mode]
	if !ok {
		return nil, fmt.Errorf("-connections is kept, new or both, not %q", mode)
	}
	for _, fresh := range kinds {
		dialer := &net.Dialer{Timeout: timeout}
		client := &http.Client{Timeout: timeout, Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: fresh, MaxIdleConnsPerHost: 64, DisableCompression: true,
		}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		for _, url := range urls {
			if _, err := http.NewRequest(http.MethodGet, url, nil); err != nil {
				return nil, err
			}
			lanes = append(lanes, &lane{URL: url, New: fresh, client: client, host: host, Errors: map[string]int{}})
		}
	}
	return lanes, nil
}

// book notes what becomes of requests. mu guards what the lanes count.
type book struct {
	mu    sync.Mutex
	out   *json.Encoder
	lanes []*lane
	lines int // failures that may still be printed
}

func newBook(out io.Writer, lanes []*lane, lines int) *book {
	return &book{out: json.NewEncoder(out), lanes: lanes, lines: lines}
}

// paced begins requests at a rate, the lanes in turn. Those that are on their way at the end are waited for.
func (b *book) paced(ctx context.Context, rate float64) {
	var wg sync.WaitGroup
	defer wg.Wait()
	step, start := time.Duration(float64(time.Second)/rate), time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(i) * step)
		if !wait(ctx, time.Until(due)) {
			return
		}
		wg.Go(func() { b.ask(i%len(b.lanes), due) })
	}
}

// workers ask one request after the other.
func (b *book) workers(ctx context.Context, n int) {
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				b.ask(i%len(b.lanes), time.Now())
			}
		})
	}
	wg.Wait()
}

// ask sends one request. Its time counts from when it was due.
func (b *book) ask(i int, due time.Time) {
	l := b.lanes[i]
	err := l.get()
	took := time.Since(due)
	b.mu.Lock()
	defer b.mu.Unlock()
	l.Sent++
	if err == nil {
		l.took = append(l.took, took)
		return
	}
	l.Failed++
	text := cause(err)
	if len(l.Errors) < 100 {
		l.Errors[text]++
	}
	if b.lines > 0 {
		b.lines--
		_ = b.out.Encode(failure{At: due, Took: millis(took), URL: l.URL, New: l.New, Error: text})
	}
}

func (l *lane) get() error {
	req, err := http.NewRequest(http.MethodGet, l.URL, nil)
	if err != nil {
		return err
	}
	req.Host = l.host
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// cause is an error without what differs from request to request: its own port, and the URL, which is known.
func cause(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, `": `); ok {
		text = rest
	}
	if at := strings.Index(text, "->"); at >= 0 {
		if from := strings.LastIndexByte(text[:at], ' '); from >= 0 {
			text = text[:from+1] + text[at+2:]
		}
	}
	return text
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// close prints what the lanes have counted. It is an error that requests failed, and that there were none.
func (b *book) close(lasted time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent, failed := 0, 0
	for _, l := range b.lanes {
		slices.SortFunc(l.took, cmp.Compare)
		if n := len(l.took); n > 0 {
			l.P50, l.P99, l.Max = millis(l.took[n/2]), millis(l.took[n*99/100]), millis(l.took[n-1])
			l.Rate = float64(n) / lasted.Seconds()
		}
		sent, failed = sent+l.Sent, failed+l.Failed
		if err := b.out.Encode(l); err != nil {
			return err
		}
	}
	if sent == 0 || failed > 0 {
		return fmt.Errorf("%d of %d requests failed", failed, sent)
	}
	return nil
}
