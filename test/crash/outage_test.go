package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// recoveryLimit returns how long everything may take to work again once etcd answers: three seconds if PROA_OUTAGES is set to
// measure it, and more in an ordinary run, because the machine may be busy with other tests.
func recoveryLimit() time.Duration {
	if os.Getenv("PROA_OUTAGES") == "" {
		return 10 * time.Second
	}
	return 3 * time.Second
}

// TestOutage makes etcd unavailable for one and for two servers while clients list, watch and write. Once etcd answers, everything
// works again within three seconds, and no watch has missed or repeated an event.
func TestOutage(t *testing.T) {
	quick := os.Getenv("PROA_OUTAGES") == ""
	const s = time.Second
	for _, tt := range []struct {
		name             string
		members, servers int
		outages          []outage // the outages of an ordinary run
	}{
		{"one server", 1, 1, []outage{{"kill -9", 3 * s}, {"frozen", 3 * s}}},
		{"two servers", 1, 2, []outage{{"kill -9", s / 10}, {"restart", 3 * s}, {"frozen", 3 * s}}},
		{"one server and three members", 3, 1, nil},
		{"two servers and three members", 3, 2, []outage{{"quorum lost", 3 * s}}},
	} {
		if !quick {
			tt.outages = longOutages(t, tt.members)
		}
		if len(tt.outages) == 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			if quick {
				t.Parallel() // measurements run one after the other
			}
			o := newOutageTest(t, startEtcd(t, tt.members), tt.servers)
			for _, out := range tt.outages {
				o.try(out)
			}
		})
	}
}

// outage is a way in which etcd is unavailable, and for how long.
type outage struct {
	kind string
	long time.Duration
}

// longOutages returns outages of every kind for each of the times in PROA_OUTAGES, such as "0.1,1,3,10,60" seconds.
func longOutages(t *testing.T, members int) (out []outage) {
	t.Helper()
	kinds := []string{"kill -9", "restart", "frozen"}
	if members > 1 {
		kinds = []string{"quorum lost", "one of three frozen"}
	}
	for _, kind := range kinds {
		for word := range strings.SplitSeq(os.Getenv("PROA_OUTAGES"), ",") {
			s, err := strconv.ParseFloat(word, 64)
			if err != nil {
				t.Fatalf("PROA_OUTAGES: %v", err)
			}
			out = append(out, outage{kind, time.Duration(s * float64(time.Second))})
		}
	}
	return out
}

// outageTest has servers on one etcd, with clients that send requests all the time.
type outageTest struct {
	*testing.T
	etcd    *etcdCluster
	servers []*cluster
	clients []*outageClient
	number  int // of the current check, for names
}

func newOutageTest(t *testing.T, etcd *etcdCluster, servers int) *outageTest {
	t.Helper()
	o := &outageTest{T: t, etcd: etcd}
	for range servers {
		c := newCluster(t)
		c.args = []string{"--etcd-servers", etcd.urls(), "--simulate", "2"}
		if len(o.servers) > 0 { // servers of one cluster share their keys
			if err := os.CopyFS(filepath.Join(c.dir, "pki"), os.DirFS(filepath.Join(o.servers[0].dir, "pki"))); err != nil {
				t.Fatal(err)
			}
		}
		c.start()
		o.servers = append(o.servers, c)
	}
	first := &outageClient{cluster: o.servers[0], http: o.servers[0].client()}
	defer first.http.CloseIdleConnections()
	first.untilCreated("/api/v1/namespaces", `{"metadata":{"name":"crash"}}`)
	first.untilCreated("/apis/apps/v1/namespaces/crash/deployments", deployment)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for i, c := range o.servers {
		oc := &outageClient{cluster: c, http: c.client(), name: fmt.Sprintf("load-%d", i), seen: map[string]int64{}}
		o.clients = append(o.clients, oc)
		for _, run := range []func(context.Context){oc.keepWriting, oc.keepListing, oc.keepWatching} {
			wg.Go(func() {
				for ctx.Err() == nil {
					run(ctx)
				}
			})
		}
	}
	t.Cleanup(func() {
		stop()
		wg.Wait()
		for _, c := range o.clients {
			c.http.CloseIdleConnections()
		}
	})
	o.check("before | 0")
	return o
}

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},` +
	`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx"}]}}}}`

// try makes etcd unavailable once, and measures how long it takes until everything works again.
func (o *outageTest) try(out outage) {
	o.Helper()
	end := o.etcd.outage(out.kind)
	time.Sleep(out.long) // the outage
	end()
	o.etcd.untilHealthy()
	name := fmt.Sprintf("%s | %v", out.kind, out.long.Seconds())
	for what, took := range o.check(name) {
		if took > recoveryLimit() {
			o.Errorf("%s: %s work again after %v, want at most %v", name, what, took, recoveryLimit())
		}
	}
}

// check measures how long it takes from now until writes, lists, watches, controllers, the scheduler and /readyz work.
func (o *outageTest) check(name string) map[string]time.Duration {
	o.Helper()
	o.number++
	began := time.Now()
	var mu sync.Mutex // guards took
	took := map[string]time.Duration{}
	var wg sync.WaitGroup
	measure := func(what string, works func(ctx context.Context) bool) {
		wg.Go(func() {
			ctx, stop := context.WithTimeout(o.Context(), time.Minute)
			defer stop()
			for !works(ctx) {
				if ctx.Err() != nil {
					o.Errorf("%s: %s do not work after a minute", name, what)
					break
				}
				time.Sleep(5 * time.Millisecond) // another process can only be polled
			}
			mu.Lock()
			defer mu.Unlock()
			took[what] = max(took[what], time.Since(began))
		})
	}
	for _, c := range o.clients {
		mark := fmt.Sprintf("mark-%s-%d", c.name, o.number)
		var written atomic.Bool
		measure("writes", func(ctx context.Context) bool {
			ok := c.create(ctx, collection, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"crash":"mark"}},"data":{"v":"1"}}`, mark))
			written.Store(ok)
			return ok
		})
		measure("lists", func(ctx context.Context) bool {
			text, err := c.try(ctx, http.MethodGet, collection+"?labelSelector=crash%3Dmark", "")
			return err == nil && written.Load() && bytes.Contains(text, []byte(mark))
		})
		measure("watches", func(context.Context) bool { return c.hasSeen(mark) })
		measure("readyz", func(ctx context.Context) bool {
			_, err := c.try(ctx, http.MethodGet, "/readyz", "")
			return err == nil
		})
	}
	c := o.clients[o.number%len(o.clients)]
	version := strconv.Itoa(o.number)
	var patched atomic.Bool
	measure("controllers", func(ctx context.Context) bool {
		if !patched.Load() {
			_, err := c.try(ctx, http.MethodPatch, "/apis/apps/v1/namespaces/crash/deployments/web",
				`{"spec":{"template":{"metadata":{"annotations":{"version":"`+version+`"}}}}}`)
			patched.Store(err == nil)
			return false
		}
		text, err := c.try(ctx, http.MethodGet, "/apis/apps/v1/namespaces/crash/replicasets", "")
		return err == nil && bytes.Contains(text, []byte(`"version":"`+version+`"`))
	})
	var created atomic.Bool
	pod := "pod-" + version
	measure("scheduler", func(ctx context.Context) bool {
		if !created.Load() {
			created.Store(c.create(ctx, "/api/v1/namespaces/crash/pods",
				fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"nginx"}]}}`, pod)))
			return false
		}
		text, err := c.try(ctx, http.MethodGet, "/api/v1/namespaces/crash/pods/"+pod, "")
		return err == nil && bytes.Contains(text, []byte(`"nodeName":`))
	})
	wg.Wait()
	line := fmt.Sprintf("| %d | %s |", len(o.servers), name)
	for _, what := range []string{"writes", "lists", "watches", "controllers", "scheduler", "readyz"} {
		line += fmt.Sprintf(" %.2f |", took[what].Seconds())
	}
	o.Log(line)
	return took
}

// outageClient is a client that uses one server all the time.
type outageClient struct {
	*cluster
	http *http.Client
	name string
	// token is the bearer token of a client without a certificate.
	token string

	mu    sync.Mutex // guards what follows
	seen  map[string]int64
	after int64
}

// try sends one request and gives up after a second.
func (c *outageClient) try(ctx context.Context, method, path, body string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	return c.request(ctx, method, path, body)
}

// request sends one request and returns the body of the answer; a status code of 300 or more is an error.
func (c *outageClient) request(ctx context.Context, method, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%d %s", res.StatusCode, text)
	}
	return text, err
}

// withToken returns a client of the same server with the token of a service account and without a certificate.
func (c *outageClient) withToken() *outageClient {
	c.Helper()
	c.must(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"bearer"},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
		`"subjects":[{"kind":"ServiceAccount","namespace":"crash","name":"bearer"}]}`)
	c.must(http.MethodPost, "/api/v1/namespaces/crash/serviceaccounts", `{"metadata":{"name":"bearer"}}`)
	text, err := c.request(c.Context(), http.MethodPost, "/api/v1/namespaces/crash/serviceaccounts/bearer/token", `{"spec":{}}`)
	if err != nil {
		c.Fatal(err)
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		c.Fatal(err)
	}
	config := c.tls.Clone()
	config.Certificates, config.GetClientCertificate = nil, nil
	b := &outageClient{cluster: c.cluster, token: answer.Status.Token, http: &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true},
	}}
	b.must(http.MethodGet, collection, "")
	return b
}

// create creates an object; it may exist already, created by an attempt without an answer.
func (c *outageClient) create(ctx context.Context, path, body string) bool {
	_, err := c.try(ctx, http.MethodPost, path, body)
	return err == nil || strings.HasPrefix(err.Error(), "409 ")
}

// untilCreated creates an object. An attempt can fail while the members of etcd elect another leader, as they may on a busy machine.
func (c *outageClient) untilCreated(path, body string) {
	c.Helper()
	for end := time.Now().Add(time.Minute); !c.create(c.Context(), path, body); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("%s cannot be created in a minute: %s", path, body)
		}
	}
}

func (c *outageClient) must(method, path, body string) {
	c.Helper()
	if _, err := c.request(c.Context(), method, path, body); err != nil {
		c.Fatal(err)
	}
}

// keepWriting writes one object again and again.
func (c *outageClient) keepWriting(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"crash":"load"}},"data":{"at":%q}}`, time.Now())
	_, _ = c.request(ctx, http.MethodPatch, collection+"/"+c.name, body) // what counts is that it does not stop
	if _, err := c.request(ctx, http.MethodGet, collection+"/"+c.name, ""); err != nil {
		_ = c.create(ctx, collection, fmt.Sprintf(`{"metadata":{"name":%q}}`, c.name))
	}
	time.Sleep(5 * time.Millisecond) // so that one client does not take the whole machine
}

// keepListing lists several kinds again and again.
func (c *outageClient) keepListing(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for _, path := range []string{collection, "/api/v1/nodes", "/api/v1/namespaces/crash/services", "/apis/batch/v1/jobs"} {
		_, _ = c.request(ctx, http.MethodGet, path, "") // what counts is that it does not stop
	}
	time.Sleep(5 * time.Millisecond) // so that one client does not take the whole machine
}

// keepWatching watches the objects of the checks, and resumes after the last event when a watch ends. A watch that cannot be
// resumed, or that repeats an event, is an error.
func (c *outageClient) keepWatching(ctx context.Context) {
	time.Sleep(5 * time.Millisecond) // as an informer would
	c.mu.Lock()
	after := c.after
	c.mu.Unlock()
	path := c.base + collection + "?watch=1&labelSelector=crash%3Dmark&allowWatchBookmarks=true"
	if after > 0 {
		path += "&resourceVersion=" + strconv.FormatInt(after, 10)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		c.Error(err)
		return
	}
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
			Type   string `json:"type"`
			Object struct {
				configMap
				Message string `json:"message"`
			} `json:"object"`
		}
		if dec.Decode(&e) != nil {
			return
		}
		rev, err := strconv.ParseInt(e.Object.Metadata.ResourceVersion, 10, 64)
		c.mu.Lock()
		switch {
		case e.Type == "ERROR" || err != nil:
			c.Errorf("the watch of %s ended with %+v", c.name, e)
		case e.Type == "ADDED" && c.seen[e.Object.Metadata.Name] != 0 ||
			e.Type != "BOOKMARK" && (after > 0 && rev <= c.after || rev <= c.seen[e.Object.Metadata.Name]):
			c.Errorf("the watch of %s shows %s again, at %d after %d", c.name, e.Object.Metadata.Name, rev, c.after)
		case e.Type != "BOOKMARK":
			c.seen[e.Object.Metadata.Name] = rev
		}
		c.after = max(c.after, rev)
		c.mu.Unlock()
	}
}

func (c *outageClient) hasSeen(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name] != 0
}

// TestTerminateDuringOutage sends SIGTERM to servers while etcd is frozen and while it is stopped, and checks that they end soon.
// Before that, /livez and /readyz answer at once and name what fails.
func TestTerminateDuringOutage(t *testing.T) {
	for _, kind := range []string{"frozen", "kill -9"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := newOutageTest(t, startEtcd(t, 1), 1)
			c := o.clients[0]
			bearer := c.withToken()
			defer bearer.http.CloseIdleConnections()
			end := o.etcd.outage(kind)
			defer end()
			for _, path := range []string{"/livez", "/readyz", "/healthz"} {
				for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
					began := time.Now()
					_, err := c.request(t.Context(), http.MethodGet, path, "")
					_, _ = bearer.request(t.Context(), http.MethodGet, path, "") // it may be an error; only the time matters
					if took := time.Since(began); took > 15*time.Second {
						t.Errorf("%s answers to a certificate and to a token after %v", path, took)
					}
					if err != nil && strings.Contains(err.Error(), "[-]etcd failed") {
						break
					}
					if time.Now().After(until) {
						t.Fatalf("%s says %v while etcd is away", path, err)
					}
				}
			}
			if _, err := bearer.request(t.Context(), http.MethodGet, collection, ""); err == nil ||
				!strings.HasPrefix(err.Error(), "503 ") {
				t.Errorf("who lists with a token while etcd is away hears %v, want 503", err)
			}
			began := time.Now()
			if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			err := c.process.Wait()
			c.process = nil
			took := time.Since(began)
			if took > 20*time.Second || err != nil { // long enough for a busy machine
				t.Errorf("the server ended %v after SIGTERM: %v", took, err)
			}
			t.Logf("the server ended %v after SIGTERM", took.Round(time.Millisecond))
		})
	}
}
