package robustness

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const collection = "/api/v1/namespaces/default/configmaps"

// traffic is a client that uses one server all the time: it creates objects, counts in one of its own, reads that again, and watches
// what all clients create.
type traffic struct {
	*testing.T
	cluster *cluster
	server  *host
	http    *http.Client

	mu           sync.Mutex // guards what follows
	acknowledged []string   // names of objects
	seen         map[string]bool
	after        int64 // the revision up to which the watch has shown everything
	last         time.Time
	gap          time.Duration // the longest time between two acknowledged writes since reset
}

type configMap struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

func newTraffic(t *testing.T, c *cluster, s *host) *traffic {
	return &traffic{T: t, cluster: c, server: s, http: c.client(c.tls), seen: map[string]bool{}, last: time.Now()}
}

// reset begins to measure the longest gap.
func (c *traffic) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gap, c.last = 0, time.Now()
}

// longest returns the longest gap, the present one included.
func (c *traffic) longest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.gap, time.Since(c.last))
}

func (c *traffic) wrote(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "" {
		c.acknowledged = append(c.acknowledged, name)
	}
	c.gap = max(c.gap, time.Since(c.last))
	c.last = time.Now()
}

// write creates and counts until ctx ends.
func (c *traffic) write(ctx context.Context) {
	counter, counted := "counter-"+c.server.name, 0
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("w-%s-%d", c.server.name, n)
		_, err := c.send(ctx, http.MethodPost, collection, `{"metadata":{"name":"`+name+`"}}`)
		if err == nil {
			c.wrote(name)
		}
		_, err = c.send(ctx, http.MethodPatch, collection+"/"+counter, fmt.Sprintf(`{"data":{"n":"%d"}}`, n))
		switch {
		case err == nil:
			counted = n
			c.wrote("")
		case strings.HasPrefix(err.Error(), "404 "):
			_, _ = c.send(ctx, http.MethodPost, collection, `{"metadata":{"name":"`+counter+`"},"data":{"n":"0"}}`)
		}
		text, err := c.send(ctx, http.MethodGet, collection+"/"+counter, "")
		var read configMap
		if err == nil && json.Unmarshal(text, &read) == nil {
			if got, err := strconv.Atoi(read.Data["n"]); err != nil || got < counted {
				c.Errorf("%s: read %q after %d was written", c.server.name, read.Data["n"], counted)
			}
		}
		time.Sleep(50 * time.Millisecond) // so that one client does not take the whole machine
	}
}

func (c *traffic) send(ctx context.Context, method, path, body string) ([]byte, error) {
	return send(ctx, c.http, 10*time.Second, method, c.server.url(path), body)
}

// watch follows what all clients create until ctx ends, and continues after the last event when a watch ends.
func (c *traffic) watch(ctx context.Context) {
	for ctx.Err() == nil {
		c.watchOnce(ctx)
		time.Sleep(20 * time.Millisecond) // as an informer would
	}
}

func (c *traffic) watchOnce(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.mu.Lock()
	after := c.after
	c.mu.Unlock()
	path := collection + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=5" // a server that is cut off ends no watch
	if after > 0 {
		path += "&resourceVersion=" + strconv.FormatInt(after, 10)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server.url(path), http.NoBody)
	if err != nil {
		c.Error(err)
		return
	}
	limit := time.AfterFunc(10*time.Second, stop)
	defer limit.Stop()
	res, err := c.http.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return
	}
	for dec := json.NewDecoder(res.Body); ; {
		var e struct {
			Type   string    `json:"type"`
			Object configMap `json:"object"`
		}
		if dec.Decode(&e) != nil {
			return
		}
		rev, err := strconv.ParseInt(e.Object.Metadata.ResourceVersion, 10, 64)
		name := e.Object.Metadata.Name
		c.mu.Lock()
		switch {
		case e.Type == "ERROR" || err != nil:
			c.Errorf("%s: the watch ended with %+v", c.server.name, e)
		case e.Type == "BOOKMARK":
		case after > 0 && rev <= c.after, e.Type == "ADDED" && c.seen[name]:
			c.Errorf("%s: the watch shows %s again, at %d after %d", c.server.name, name, rev, c.after)
		default:
			c.seen[name] = true
		}
		c.after = max(c.after, rev)
		c.mu.Unlock()
	}
}

// missing returns the objects of a list that the watch has not shown.
func (c *traffic) missing(names []string) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if !c.seen[name] {
			out = append(out, name)
		}
	}
	return out
}
