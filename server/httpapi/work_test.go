package httpapi

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/server/fairqueue"
)

// TestRequestsOfOneUserShareProcessorTime checks that requests of a user wait for other requests of the same user that take
// processor time, and for no others.
func TestRequestsOfOneUserShareProcessorTime(t *testing.T) {
	for name, v := range map[string]struct{ method, path, media, body string }{
		"list":   {"GET", configMapsPath, "", ""},
		"watch":  {"GET", configMapsPath + "?watch=1&timeoutSeconds=1", "", ""},
		"create": {"POST", configMapsPath, "application/json", `{"metadata":{"name":"NAME"}}`},
		"apply": {"PATCH", configMapsPath + "/m0000?fieldManager=NAME", "application/apply-patch+yaml",
			`{"apiVersion":"v1","kind":"ConfigMap","data":{"NAME":"x"}}`},
		"update":     {"PUT", configMapsPath + "/m0001", "application/json", `{"metadata":{"name":"m0001"},"data":{"a":"NAME"}}`},
		"compressed": {"GET", configMapsPath, "", ""},
		"page":       {"GET", configMapsPath + "?limit=3", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemoryRig(t, 100)
				r.processors = fairqueue.NewProcessors(2)
				r.createConfigMaps(20, 50<<10)
				var wg sync.WaitGroup
				send := func(who string) *stallingWriter {
					w := newStallingWriter(-1)
					user, _, _ := strings.Cut(who, " ")
					fill := strings.NewReplacer("NAME", user)
					headers := []string{"Content-Type: " + v.media}
					if name == "compressed" {
						headers = append(headers, "Accept-Encoding: gzip")
					}
					wg.Go(func() {
						r.send(w, who, v.method, fill.Replace(v.path), strings.NewReader(fill.Replace(v.body)), headers...)
					})
					synctest.Wait()
					return w
				}
				turns := []fairqueue.Work{r.processors.For("heavy"), r.processors.For("heavy")}
				for i := range turns {
					if err := turns[i].Begin(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if w := send("heavy"); w.hasStarted() {
					t.Errorf("the request of a user who computes did not wait: %d, %.200s", w.code, w.got.String())
				}
				if w := send("light"); w.code != http.StatusOK && w.code != http.StatusCreated || !w.hasStarted() {
					t.Errorf("the request of another user waits, or has failed: %d, %.200s", w.code, w.got.String())
				}
				if w := send("boss system:masters"); w.code == 0 {
					t.Error("a request of an administrator waits")
				}
				for i := range turns {
					turns[i].End()
				}
				wg.Wait()
			})
		})
	}
}

// TestUnreadListTakesNoProcessorTime checks that a client that does not read its list takes no processor time from other requests of its
// user.
func TestUnreadListTakesNoProcessorTime(t *testing.T) {
	for _, encoding := range []string{"identity", "gzip"} {
		t.Run(encoding, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemoryRig(t, 100)
				r.processors = fairqueue.NewProcessors(1)
				r.createConfigMaps(20, 50<<10)
				var wg sync.WaitGroup
				var unread []*stallingWriter
				for _, path := range []string{configMapsPath, configMapsPath, configMapsPath + "?watch=1", configMapsPath + "?watch=1"} {
					w := newStallingWriter(0)
					unread = append(unread, w)
					wg.Go(func() { r.send(w, "heavy", "GET", path, nil, "Accept-Encoding: "+encoding) })
				}
				synctest.Wait()
				start, w := time.Now(), newStallingWriter(-1)
				if r.send(w, "heavy", "GET", configMapsPath, nil, "Accept-Encoding: "+encoding); w.code != http.StatusOK ||
					time.Since(start) != 0 {
					t.Errorf("%d after %s", w.code, time.Since(start))
				}
				for _, w := range unread {
					_ = w.SetWriteDeadline(time.Unix(1, 0))
				}
				wg.Wait()
			})
		})
	}
}
