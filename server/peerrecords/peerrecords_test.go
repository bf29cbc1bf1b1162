package peerrecords

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/trace"
)

const serverUser = "the-servers"

// network is some servers, which reach each other without sockets, and the Leases that they share.
type network struct {
	client.Client
	leases   map[string]*coordinationv1.Lease
	handlers map[string]http.Handler // by address
	as       *x509.Certificate       // of whoever asks
	asked    atomic.Int32
}

func newNetwork() *network {
	return &network{leases: map[string]*coordinationv1.Lease{}, handlers: map[string]http.Handler{},
		as: certificate(serverUser, "system:masters")}
}

func certificate(name string, groups ...string) *x509.Certificate {
	c := &x509.Certificate{}
	c.Subject.CommonName, c.Subject.Organization = name, groups
	return c
}

// server adds a server with records.
func (n *network) server(t *testing.T, port uint16, records ...hop.Record) *Peers {
	t.Helper()
	r := hop.NewRecorder(10_000)
	for i := range records {
		r.Add(records[i])
	}
	p := New(Config{
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), port), User: serverUser,
		Client: func() client.Client { return n }, Records: func() *hop.Recorder { return r }, Log: slog.New(slog.DiscardHandler),
		Verify: func(chain []*x509.Certificate) (user.Info, error) {
			s := chain[0].Subject
			return &user.DefaultInfo{Name: s.CommonName, Groups: s.Organization}, nil
		},
	})
	p.http.Transport = n
	n.handlers[p.Address.String()] = p
	if err := p.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	h := n.handlers[req.URL.Host]
	if h == nil {
		return nil, errors.New("connection refused")
	}
	n.asked.Add(1)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{n.as}}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// lines is a handler that answers with a text.
func lines(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

func (n *network) View(context.Context, schema.GroupResource) (client.View, error) {
	return leaseView{n: n}, nil
}

func (n *network) Create(_ context.Context, _ schema.GroupResource, o kind.Object) (kind.Object, error) {
	n.leases[o.GetName()] = o.(*coordinationv1.Lease)
	return o, nil
}

func (n *network) Update(_ context.Context, _ schema.GroupResource, o kind.Object, _ string) (kind.Object, error) {
	n.leases[o.GetName()] = o.(*coordinationv1.Lease)
	return o, nil
}

func (n *network) Delete(_ context.Context, _ schema.GroupResource, _, name string, _ metav1.DeleteOptions) error {
	delete(n.leases, name)
	return nil
}

// leaseView is the view of Leases.
type leaseView struct {
	client.View
	n *network
}

func (v leaseView) Get(_, name string) (kind.Object, bool) {
	l, found := v.n.leases[name]
	return l, found
}

func (v leaseView) List(string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.n.leases)) {
			if !yield(v.n.leases[name]) {
				return
			}
		}
	}
}

// rec returns a record of an object at a revision, which another write has caused.
func rec(verb, resource string, uid types.UID, rev int64, cause write) hop.Record {
	r := hop.Record{UID: uid, Rev: rev, Verb: verb, Resource: resource, Namespace: "default", Name: string(uid), User: "somebody",
		Start: time.Now().Add(time.Duration(rev) * time.Millisecond).Round(0), CauseUID: cause.UID, CauseRev: cause.Rev}
	r.Took[hop.Commit] = time.Millisecond
	return r
}

func ref(resource, name string) trace.Ref {
	return trace.Ref{Resource: resource, Namespace: "default", Name: name}
}

// names returns the verbs and names of records.
func names(records []hop.Record) string {
	var out []string
	for _, r := range records {
		out = append(out, r.Verb+" "+r.Name)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func texts(missing []Missing) string {
	var out []string
	for _, m := range missing {
		out = append(out, m.Text)
	}
	return strings.Join(out, "; ")
}

// rollout is a Deployment whose records are on three servers: the request, the controllers, and the nodes.
func rollout() (request, controllers, nodes []hop.Record) {
	made := rec("create", "deployments", "web", 1, write{})
	made.Wire = &hop.Wire{Request: []byte("secret"), RequestSize: 6}
	request = []hop.Record{made, rec("create", "deployments", "other", 2, write{})}
	controllers = []hop.Record{
		rec(hop.Reconcile, "deployments", "web", 1, write{"web", 1}),
		rec("create", "replicasets", "web-1", 3, write{"web", 1}),
		rec("create", "pods", "pod", 4, write{"web-1", 3}),
		rec(hop.Reconcile, "deployments", "other", 2, write{"other", 2}),
	}
	nodes = []hop.Record{rec(hop.Pull, "pods", "pod", 6, write{"pod", 6}), rec(hop.Pull, "pods", "alien", 7, write{"alien", 7})}
	return request, controllers, nodes
}

// TestRecordsOfAllServers: whichever server is asked, and whichever object is asked for, the records of all servers that belong to it
// are found, also in a second round, and others are not.
func TestRecordsOfAllServers(t *testing.T) {
	request, controllers, nodes := rollout()
	n := newNetwork()
	servers := []*Peers{n.server(t, 1, request...), n.server(t, 2, controllers...), n.server(t, 3, nodes...)}
	const want = "create pod, create web, create web-1, pull pod, reconcile web"
	for i, p := range servers {
		for _, object := range []trace.Ref{ref("deployments", "web"), ref("pods", "pod")} {
			local := p.Records().Select(func(*hop.Record) bool { return true })
			all, missing := p.Add(t.Context(), local, []trace.Ref{object})
			if len(missing) > 0 {
				t.Errorf("server %d, %s: missing %s", i, object.Name, texts(missing))
			}
			if !slices.EqualFunc(all[:len(local)], local, func(a, b hop.Record) bool { return a.Name == b.Name && a.Verb == b.Verb }) {
				t.Errorf("server %d, %s: its own records are %s", i, object.Name, names(all[:len(local)]))
			}
			for _, r := range all[len(local):] {
				if r.Wire != nil {
					t.Errorf("bodies were sent of %s", r.Name)
				}
			}
			s := related(all, &question{Objects: []trace.Ref{object}}, maxRecords)
			got := map[string]bool{}
			for _, j := range s.found {
				got[all[j].Verb+" "+all[j].Name] = true
			}
			if list := strings.Join(slices.Sorted(maps.Keys(got)), ", "); list != want {
				t.Errorf("server %d, %s: %s, want %s", i, object.Name, list, want)
			}
			if strings.Contains(names(all[len(local):]), "alien") || strings.Contains(names(all[len(local):]), "other") {
				t.Errorf("server %d, %s: others sent %s", i, object.Name, names(all[len(local):]))
			}
		}
	}
}

// TestRecentOfAllServers: a list has the traces of what users wrote at any server, with the records of all of them; of one namespace if
// that is asked for, and only so many of each server.
func TestRecentOfAllServers(t *testing.T) {
	request, controllers, nodes := rollout()
	far := rec("create", "configmaps", "far", 8, write{})
	far.Namespace = "elsewhere"
	component := rec("create", "configmaps", "internal", 9, write{})
	component.User = "system:kube-controller-manager"
	n := newNetwork()
	servers := []*Peers{n.server(t, 1, append(request, far, component)...), n.server(t, 2, controllers...), n.server(t, 3, nodes...)}
	everything := trace.Reader{MayGet: func(trace.Ref) bool { return true }, MayGetNode: func(string) bool { return true }}
	for i, p := range servers {
		for _, c := range []struct {
			namespace string
			limit     int
			want      string
		}{{"default", 10, "deployments:other 2, deployments:web 5"}, {"", 10, "configmaps:far 1, deployments:other 2, deployments:web 5"},
			{"", 1, "configmaps:far 1"}} {
			local := p.Records().Select(func(*hop.Record) bool { return true })
			if c.limit == 1 && i == 0 {
				continue // it has all of its own records
			}
			all, missing := p.AddRecent(t.Context(), local, c.namespace, c.limit)
			if len(missing) > 0 {
				t.Errorf("server %d: missing %s", i, texts(missing))
			}
			x := trace.NewIndex(all)
			var got []string
			for _, tr := range x.Recent(c.namespace, 10, time.Now(), everything) {
				records := 0
				for _, s := range x.Trace(trace.Ref{Resource: tr.Object.Resource, Namespace: tr.Object.Namespace, Name: tr.Object.Name},
					time.Now()).Spans {
					if s.Parent == "" && s.HopName != "watch" {
						records++
					}
				}
				got = append(got, fmt.Sprint(tr.Name, " ", records))
			}
			slices.Sort(got)
			if list := strings.Join(got, ", "); list != c.want {
				t.Errorf("server %d, namespace %q, %d: %s, want %s", i, c.namespace, c.limit, list, c.want)
			}
			if strings.Contains(names(all[len(local):]), "internal") || strings.Contains(names(all[len(local):]), "alien") {
				t.Errorf("server %d: others sent %s", i, names(all[len(local):]))
			}
		}
	}
	if all, missing := (*Peers)(nil).AddRecent(t.Context(), request, "", 1); len(all) != len(request) || missing != nil {
		t.Errorf("without peers: %s, %s", names(all), texts(missing))
	}
}

// TestSameRecordTwice: a record that two servers have is one span.
func TestSameRecordTwice(t *testing.T) {
	n := newNetwork()
	made := rec("create", "pods", "pod", 1, write{})
	made.Process = "host"
	p := n.server(t, 1, made)
	n.server(t, 2, made)
	all, _ := p.Add(t.Context(), p.Records().Select(func(*hop.Record) bool { return true }), []trace.Ref{ref("pods", "pod")})
	if len(all) < 2 {
		t.Fatalf("%d records", len(all))
	}
	got := trace.NewIndex(all).Trace(ref("pods", "pod"), time.Now())
	whole := 0
	for _, s := range got.Spans {
		if s.Parent == "" {
			whole++
		}
	}
	if whole != 1 {
		t.Errorf("%d spans of one write", whole)
	}
}

// TestNoPeers: without other servers nothing is asked.
func TestNoPeers(t *testing.T) {
	local := []hop.Record{rec("create", "pods", "pod", 1, write{})}
	var none *Peers
	none.Announce(t.Context())
	if all, missing := none.Add(t.Context(), local, nil); len(all) != 1 || missing != nil {
		t.Errorf("%d records, missing %v", len(all), missing)
	}
	w := httptest.NewRecorder()
	none.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, http.NoBody))
	if w.Code != http.StatusNotFound {
		t.Errorf("a server without peers answers %d", w.Code)
	}
	n := newNetwork()
	p := n.server(t, 1)
	if all, missing := p.Add(t.Context(), local, nil); len(all) != 1 || missing != nil || n.asked.Load() != 0 {
		t.Errorf("%d records, missing %v, asked %d", len(all), missing, n.asked.Load())
	}
}

// TestOnlyServersAsk: a server answers nobody but servers, by the certificate of the connection.
func TestOnlyServersAsk(t *testing.T) {
	n := newNetwork()
	p := n.server(t, 1)
	with := func(of ...*x509.Certificate) *tls.ConnectionState { return &tls.ConnectionState{PeerCertificates: of} }
	for name, tt := range map[string]struct {
		state *tls.ConnectionState
		want  int
	}{
		"a server":                       {with(n.as), http.StatusOK},
		"no TLS":                         {nil, http.StatusForbidden},
		"no certificate":                 {with(), http.StatusForbidden},
		"an administrator":               {with(certificate("admin", "system:masters")), http.StatusForbidden},
		"the name without the group":     {with(certificate(serverUser)), http.StatusForbidden},
		"the name with some other group": {with(certificate(serverUser, "masters")), http.StatusForbidden},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader("{}"))
		req.TLS = tt.state
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.want)
		}
	}
}

// TestQuestionsAreBounded: a question that is too large, or that is none, is refused.
func TestQuestionsAreBounded(t *testing.T) {
	n := newNetwork()
	p := n.server(t, 1)
	many, err := json.Marshal(question{Writes: make([]write, maxWrites+1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"other": 1}`, "{} {}", string(many), `{"writes": [` + strings.Repeat(" ", maxQuestion) + "]}",
		`{"objects": [{}, {}, {}, {}, {}]}`, `{"recent": 201}`, `{"recent": -1}`,
		`{"attempts": [` + strings.Repeat(`"x",`, maxAttempts) + `"x"]}`} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(text))
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{n.as}}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%.40q: %d", text, w.Code)
		}
	}
}

// TestAnswersAreBounded: an answer has no more records than one may have, is not too large, and says that there are more.
func TestAnswersAreBounded(t *testing.T) {
	n := newNetwork()
	many := make([]hop.Record, 0, 6000)
	cause := write{"pod", 1}
	for i := range cap(many) {
		many = append(many, rec("create", "events", types.UID(fmt.Sprint("object", i)), int64(i+2), cause))
		many[i].Resource = "configmaps"
	}
	asking, full := n.server(t, 1), n.server(t, 2, many...)
	body, err := full.answer(&question{Writes: []write{cause}})
	if err != nil || len(body) > maxAnswer {
		t.Fatalf("%v, %d bytes", err, len(body))
	}
	records, more, err := readAnswer(body, full.name, time.Now())
	if err != nil || !more || len(records) > maxRecords || len(records) < 1000 {
		t.Errorf("%v, more %t, %d records of %d bytes", err, more, len(records), len(body))
	}
	all, missing := asking.Add(t.Context(), []hop.Record{rec("create", "pods", "pod", 1, write{})}, []trace.Ref{ref("pods", "pod")})
	if len(all) != 1+len(records) || len(missing) != 1 || !strings.Contains(missing[0].Text, "more records") {
		t.Errorf("%d records, missing %s", len(all), texts(missing))
	}
}

// TestBadAnswers: an answer with anything wrong in it counts as none, and the server is named.
func TestBadAnswers(t *testing.T) {
	good := rec("create", "pods", "pod", 1, write{})
	with := func(change func(*hop.Record)) string {
		r := good
		change(&r)
		text, err := json.Marshal([]hop.Record{good, r})
		if err != nil {
			t.Fatal(err)
		}
		return `{"server": "NAME", "records": ` + string(text) + "}"
	}
	for name, tt := range map[string]struct{ text, want string }{
		"good":             {with(func(*hop.Record) {}), ""},
		"no JSON":          {"<html>", "cannot be read"},
		"a field too many": {`{"server": "NAME", "recursion": true}`, "cannot be read"},
		"two answers":      {`{"server": "NAME"}{}`, "cannot be read"},
		"another server":   {`{"server": "other", "records": []}`, "another server"},
		"a strange record": {`{"server": "NAME", "records": [{"Verb": 7}]}`, "cannot be read"},
		"too large":        {`{"server": "NAME", "records": [` + strings.Repeat(" ", maxAnswer) + "]}", "too large"},
		"too many":         {`{"server": "NAME", "records": [` + strings.Repeat("{},", maxRecords) + "{}]}", "too many records"},
		"no verb":          {with(func(r *hop.Record) { r.Verb = "" }), "cannot be"},
		"bodies":           {with(func(r *hop.Record) { r.Wire = &hop.Wire{} }), "it has bodies"},
		"the future":       {with(func(r *hop.Record) { r.Start = r.Start.Add(time.Hour) }), "it begins at"},
		"no time":          {with(func(r *hop.Record) { r.Start = time.Time{} }), "it begins at"},
		"negative":         {with(func(r *hop.Record) { r.Took[hop.Commit] = -1 }), "at hop 7"},
		"for ever":         {with(func(r *hop.Record) { r.Wait[hop.Node] = 1 << 62 }), "at hop 11"},
		"no such hop":      {with(func(r *hop.Record) { r.Refused = 13 }), "refused at hop 13"},
		"a step nowhere":   {with(func(r *hop.Record) { r.Steps = []hop.Step{{Hop: 99}} }), "at hop 99"},
		"a step too long":  {with(func(r *hop.Record) { r.Steps = []hop.Step{{Hop: 1, Took: 1 << 62}} }), "a step"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork()
			p, bad := n.server(t, 1), n.server(t, 2)
			n.handlers[bad.Address.String()] = lines(strings.Replace(tt.text, "NAME", bad.name, 1))
			all, missing := p.Add(t.Context(), nil, []trace.Ref{ref("pods", "pod")})
			if tt.want == "" {
				if len(missing) > 0 || len(all) < 2 {
					t.Errorf("%d records, missing %s", len(all), texts(missing))
				}
				return
			}
			if len(all) != 0 || len(missing) != 1 || !strings.Contains(missing[0].Text, tt.want) || !missing[0].Until.IsZero() ||
				!strings.HasPrefix(missing[0].Text, bad.name+" at 192.0.2.1:2: ") {
				t.Errorf("%d records, missing %s, want %s", len(all), texts(missing), tt.want)
			}
		})
	}
}

// TestLongTextsOfOtherServers: what another server sends is cut to what a server records itself.
func TestLongTextsOfOtherServers(t *testing.T) {
	n := newNetwork()
	p, liar := n.server(t, 1), n.server(t, 2)
	r := rec("create", "pods", "pod", 1, write{})
	r.User, r.Error, r.Steps = strings.Repeat("u", 10_000), strings.Repeat("\x1b", 10_000), make([]hop.Step, 1000)
	r.Steps[0].Detail = strings.Repeat("d", 10_000)
	text, err := json.Marshal([]hop.Record{r})
	if err != nil {
		t.Fatal(err)
	}
	n.handlers[liar.Address.String()] = lines(`{"server": "` + liar.name + `", "records": ` + string(text) + "}")
	all, missing := p.Add(t.Context(), nil, []trace.Ref{ref("pods", "pod")})
	if len(all) == 0 || len(missing) > 0 {
		t.Fatalf("%d records, missing %s", len(all), texts(missing))
	}
	if got := all[0]; len(got.User) > hop.MaxName || len(got.Error) > hop.MaxText || strings.Contains(got.Error, "\x1b") ||
		len(got.Steps) > hop.MaxSteps || len(got.Steps[0].Detail) > hop.MaxText {
		t.Errorf("%d bytes of user, %d of error, %d steps", len(got.User), len(got.Error), len(got.Steps))
	}
}

// TestSilentServers: servers that do not answer are named after a second altogether, those that stopped are not asked, and the answers
// of others count.
func TestSilentServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		gone, old := n.server(t, 6), n.server(t, 7)
		time.Sleep(forgetAfter / 2)
		if err := gone.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		time.Sleep(forgetAfter/2 + time.Second)
		hanging := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
		refusing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		made := rec("create", "pods", "pod", 1, write{})
		p := n.server(t, 1)
		n.server(t, 2, made)
		n.handlers[n.server(t, 3).Address.String()] = hanging
		n.handlers[n.server(t, 4).Address.String()] = refusing
		delete(n.handlers, n.server(t, 5).Address.String())
		began := time.Now()
		all, missing := p.Add(t.Context(), nil, []trace.Ref{ref("pods", "pod")})
		if took := time.Since(began); took != askTimeout {
			t.Errorf("it took %v", took)
		}
		if names(all) != "create pod" {
			t.Errorf("records %s", names(all))
		}
		got := texts(missing)
		for _, want := range []string{":3: it did not answer in 1s", ":4: it answered 403", ":5: connection refused", ":6: it has stopped"} {
			if !strings.Contains(got, want) {
				t.Errorf("missing %s, want %s", got, want)
			}
		}
		for _, m := range missing {
			if strings.Contains(m.Text, "stopped") && !m.Until.Equal(stopped.Add(renewal)) {
				t.Errorf("%s until %v, want %v", m.Text, m.Until, stopped.Add(renewal))
			}
		}
		if _, kept := n.leases[old.name]; kept {
			t.Error("the Lease of a server that stopped an hour ago is still there")
		}
		if _, kept := n.leases[gone.name]; !kept {
			t.Error("the Lease of a server that stopped half an hour ago was deleted")
		}
	})
}

// TestFalseLeases checks what somebody can do who may write Leases in kube-system: neither texts of any length, nor a server that lives
// forever, nor any number of them reaches the readers of traces.
func TestFalseLeases(t *testing.T) {
	n := newNetwork()
	p := n.server(t, 1)
	lie := func(name, address string, renewed time.Time) {
		l := n.leases[p.name].DeepCopy()
		l.Name, l.Annotations[addressKey], l.Spec.RenewTime = name, address, &metav1.MicroTime{Time: renewed}
		n.leases[name] = l
	}
	lie("a", strings.Repeat("\x1b[2J", 10_000), time.Now())
	lie("b", "192.0.2.9:1", time.Now().Add(1000*time.Hour))
	for i := range 100 {
		lie(fmt.Sprint("c", i), fmt.Sprint("192.0.2.10:", i+1), time.Now().Add(-10*time.Minute))
	}
	_, missing := p.Add(t.Context(), nil, []trace.Ref{ref("pods", "pod")})
	got := texts(missing)
	if len(got) > 4096 || strings.Contains(got, "\x1b") || !strings.Contains(got, "a: its Lease has no valid address") ||
		!strings.Contains(got, "b at 192.0.2.9:1: its Lease is from the future") || !strings.Contains(got, "85 other servers") {
		t.Errorf("%d bytes: %.3000s", len(got), got)
	}
	if n.asked.Load() != 0 {
		t.Error("a server was asked")
	}
	for _, m := range missing {
		if strings.Contains(m.Text, "85 other") && m.Until.IsZero() {
			t.Error("servers that have stopped count as such that run")
		}
	}
}

// TestFalseLeasesHideNoServer checks that Leases of servers that do not exist, whose names come first, neither keep those that have
// answered from being asked, nor make every question wait.
func TestFalseLeasesHideNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p := n.server(t, 1)
		n.server(t, 2, rec("create", "pods", "pod", 1, write{}))
		object := []trace.Ref{ref("pods", "pod")}
		if all, missing := p.Add(t.Context(), nil, object); !strings.HasPrefix(names(all), "create pod") || missing != nil {
			t.Fatalf("%s, missing %s", names(all), texts(missing))
		}
		hanging := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
		for i := range 2 * maxPeers {
			l := n.leases[p.name].DeepCopy()
			l.Name, l.Annotations[addressKey] = fmt.Sprint("aaa-", i), fmt.Sprint("192.0.2.10:", i+1)
			n.leases[l.Name], n.handlers[l.Annotations[addressKey]] = l, hanging
		}
		var took []time.Duration
		for range 10 {
			begin := time.Now()
			if all, missing := p.Add(t.Context(), nil, object); !strings.HasPrefix(names(all), "create pod") || len(missing) == 0 {
				t.Errorf("%s, missing %s", names(all), texts(missing))
			}
			took = append(took, time.Since(begin))
		}
		if took[0] != askTimeout || took[9] != 0 {
			t.Errorf("the questions took %v", took)
		}
		for range 10 * maxContacts {
			p.contacts.note(peer{identity: identity{rand.Text(), "x"}}, errors.New("no"), time.Now())
			p.contacts.note(peer{identity: identity{rand.Text(), "x"}}, nil, time.Now())
		}
		if len(p.contacts.answered) > maxContacts || len(p.contacts.failed) > maxContacts {
			t.Errorf("%d and %d servers are remembered", len(p.contacts.answered), len(p.contacts.failed))
		}
	})
}

// TestAnnounce: a server renews its Lease, so that others ask it.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		p, other := n.server(t, 1), n.server(t, 2)
		ctx, stop := context.WithCancel(t.Context())
		go other.Announce(ctx)
		time.Sleep(10 * lifetime)
		synctest.Wait()
		if _, missing := p.Add(ctx, nil, nil); missing != nil || n.asked.Load() != 1 {
			t.Errorf("missing %s, asked %d", texts(missing), n.asked.Load())
		}
		stop()
		time.Sleep(2 * lifetime)
		if _, missing := p.Add(t.Context(), nil, nil); !strings.Contains(texts(missing), "has stopped") || n.asked.Load() != 1 {
			t.Errorf("missing %s, asked %d", texts(missing), n.asked.Load())
		}
	})
}

// FuzzReadAnswer: no answer makes a server fail, and what it takes can be drawn.
func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte(`{"server": "a", "records": [{"Verb": "create", "Resource": "pods", "Start": "2026-11-17T00:00:00Z"}]}`))
	now := time.Date(2026, 11, 17, 1, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body []byte) {
		records, _, err := readAnswer(body, "a", now)
		if err != nil {
			return
		}
		trace.NewIndex(records).Trace(ref("pods", "pod"), now)
		for i := range records {
			if end := records[i].End(); end.Before(records[i].Start) {
				t.Errorf("%+v ends before it begins", records[i])
			}
		}
	})
}
