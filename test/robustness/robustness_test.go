// Package robustness breaks members of an etcd and API servers, one at a time, while clients of every server write, read and watch, and
// checks that nothing is lost, stale, repeated or missing, and that the others go on within two seconds.
package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// limit is within how much time every client writes again when one member of etcd is broken. On a machine that is too busy to elect a
// leader of etcd in this time, a client of etcd itself shows that, and slack is allowed on top of what that client sees.
const limit, slack = 2 * time.Second, time.Second

// fault breaks one process.
type fault struct {
	how  string
	what string // leader, follower or server
	long time.Duration
}

func TestRobustness(t *testing.T) {
	c := newCluster(t, 3)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var clients []*traffic
	for _, s := range c.servers {
		clients = append(clients, newTraffic(t, c, s))
	}
	for _, x := range clients {
		wg.Go(func() { x.write(ctx) })
		wg.Go(func() { x.watch(ctx) })
	}
	deployments := "/apis/apps/v1/namespaces/default/deployments"
	if _, err := send(ctx, c.admin, time.Minute, http.MethodPost, c.servers[0].url(deployments), deployment); err != nil {
		t.Fatal(err)
	}
	all := []string{"s0", "s1", "s2"}
	const s = time.Second
	for n, f := range []fault{
		{"freeze", "follower", 3 * s}, {"freeze", "leader", 4 * s}, {"cut", "follower", 3 * s}, {"cut", "leader", 4 * s}, {"kill -9", "leader", 3 * s},
		{"kill -9", "server", 7 * s}, {"freeze", "server", 8 * s}, {"cut", "server", 8 * s},
	} {
		name := f.how + " " + f.what
		victim, watched := c.victim(f.what, n), c.servers
		if f.what == "server" {
			watched = slices.DeleteFunc(slices.Clone(watched), func(h *host) bool { return h == victim })
		}
		control := c.control(ctx, victim)
		for _, x := range clients {
			x.reset()
		}
		mend := victim.breakBy(f.how)
		time.Sleep(f.long / 2)
		until(t, name+": a Deployment can be changed", 30*s, func() bool {
			_, err := send(ctx, c.admin, 5*s, http.MethodPatch, watched[0].url(deployments+"/web"),
				fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"fault":"%d"}}}}}`, n))
			return err == nil
		})
		time.Sleep(f.long / 2)
		etcd := control()
		allowed := max(limit, etcd+slack)
		line := fmt.Sprintf("%s %s: longest gap of writes: etcd itself %v", name, victim.name, etcd.Round(10*time.Millisecond))
		for i, x := range clients {
			if !slices.Contains(watched, c.servers[i]) {
				continue
			}
			gap := x.longest()
			line += fmt.Sprintf(", %s %v", x.server.name, gap.Round(10*time.Millisecond))
			if gap > allowed {
				t.Errorf("%s: clients of %s could not write for %v, allowed are %v", name, x.server.name, gap, allowed)
			}
		}
		t.Log(line)
		if f.what == "server" {
			want := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == victim.name })
			until(t, name+": default/kubernetes does not lead to it", 20*s,
				func() bool { return slices.Equal(c.endpoints(watched[0]), want) })
		}
		mend()
		until(t, name+": every member of etcd answers", 30*s, func() bool {
			return !slices.ContainsFunc(c.members, func(m *host) bool { return c.put(ctx, m) != nil })
		})
		until(t, name+": default/kubernetes leads to all", 30*s, func() bool { return slices.Equal(c.endpoints(watched[0]), all) })
		for _, x := range clients {
			x.reset()
		}
		until(t, name+": all write again", 30*s, func() bool {
			return !slices.ContainsFunc(clients, func(x *traffic) bool { return x.longest() > 2*s || x.wroteNothing() })
		})
	}
	c.checkDeployment()
	stop()
	wg.Wait()
	c.checkTraffic(clients)
}

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":4,"selector":{"matchLabels":{"app":"web"}},` +
	`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"nginx"}]}}}}`

// victim returns the host that a fault breaks.
func (c *cluster) victim(what string, n int) *host {
	c.Helper()
	if what == "server" {
		return c.servers[n%len(c.servers)]
	}
	leader := -1
	until(c.T, "etcd has a leader", 30*time.Second, func() bool { leader = c.leader(); return leader >= 0 })
	if what == "leader" {
		return c.members[leader]
	}
	return c.members[(leader+1)%len(c.members)]
}

// control writes at a member that is not broken, until it is stopped; then it returns the longest time without a write.
func (c *cluster) control(ctx context.Context, victim *host) (stop func() time.Duration) {
	at := c.members[0]
	if at == victim {
		at = c.members[1]
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan time.Duration, 1)
	go func() {
		last, gap := time.Now(), time.Duration(0)
		for ctx.Err() == nil {
			if c.put(ctx, at) == nil {
				gap = max(gap, time.Since(last))
				last = time.Now()
			}
			time.Sleep(50 * time.Millisecond) // so that one client does not take the whole machine
		}
		done <- max(gap, time.Since(last))
	}()
	return func() time.Duration { cancel(); return <-done }
}

// wroteNothing reports whether no write was acknowledged since reset.
func (c *traffic) wroteNothing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gap == 0
}

// checkDeployment checks that no controller has worked twice: every change has made one ReplicaSet, and there are as many Pods as wanted.
func (c *cluster) checkDeployment() {
	c.Helper()
	list := func(path string) (items []struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Template struct {
				Metadata struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}) {
		text, err := send(c.Context(), c.admin, 10*time.Second, http.MethodGet, c.servers[0].url(path), "")
		var answer struct {
			Items json.RawMessage `json:"items"`
		}
		if err != nil || json.Unmarshal(text, &answer) != nil || json.Unmarshal(answer.Items, &items) != nil {
			c.Logf("%s: %v %.200s", path, err, text)
		}
		return items
	}
	until(c.T, "the Deployment is complete", time.Minute, func() bool {
		text, err := send(c.Context(), c.admin, 10*time.Second, http.MethodGet,
			c.servers[0].url("/apis/apps/v1/namespaces/default/deployments/web"), "")
		return err == nil && bytes.Contains(text, []byte(`"updatedReplicas":4`)) && bytes.Contains(text, []byte(`"readyReplicas":4`)) &&
			len(list("/api/v1/namespaces/default/pods")) == 4
	})
	templates := map[string]bool{}
	for _, rs := range list("/apis/apps/v1/namespaces/default/replicasets") {
		fault := rs.Spec.Template.Metadata.Annotations["fault"]
		if templates[fault] {
			c.Errorf("there are two ReplicaSets for the fault %q", fault)
		}
		templates[fault] = true
	}
}

// checkTraffic checks that what was acknowledged is there, and that every client's watch has shown it.
func (c *cluster) checkTraffic(clients []*traffic) {
	c.Helper()
	text, err := send(c.Context(), c.admin, time.Minute, http.MethodGet, c.servers[0].url(collection), "")
	if err != nil {
		c.Fatal(err)
	}
	var stored struct {
		Items []configMap `json:"items"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		c.Fatal(err)
	}
	names := map[string]bool{}
	for _, o := range stored.Items {
		names[o.Metadata.Name] = true
	}
	var acknowledged []string
	for _, x := range clients {
		acknowledged = append(acknowledged, x.acknowledged...)
	}
	c.Logf("%d creates were acknowledged, %d objects are stored", len(acknowledged), len(names))
	for _, name := range acknowledged {
		if !names[name] {
			c.Errorf("%s was acknowledged and is lost", name)
		}
	}
	for _, x := range clients {
		ctx, stop := context.WithTimeout(c.Context(), 30*time.Second)
		for len(x.missing(acknowledged)) > 0 && ctx.Err() == nil {
			x.watchOnce(ctx)
		}
		stop()
		if missing := x.missing(acknowledged); len(missing) > 0 {
			c.Errorf("the watch of %s has not shown %d objects, such as %v", x.server.name, len(missing), missing[:min(3, len(missing))])
		}
	}
}
