package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLoadCounts sends load to a server that fails every fifth request, over kept and over new connections.
func TestLoadCounts(t *testing.T) {
	var asked, connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop.test" {
			t.Errorf("the host is %s", r.Host)
		}
		if asked.Add(1)%5 == 0 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	lanes, err := lanesOf([]string{server.URL}, "both", "shop.test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b := newBook(&out, lanes, 10)
	for i := range 10 {
		b.ask(i%2, time.Now())
	}
	if err := b.close(time.Second); err == nil || err.Error() != "2 of 10 requests failed" {
		t.Errorf("the end is %v", err)
	}
	if connections.Load() != 6 { // one that is kept, and five new ones
		t.Errorf("%d connections", connections.Load())
	}
	lines := json.NewDecoder(&out)
	for _, fresh := range []bool{false, true} { // the fifth request is kept, the tenth is new
		var f failure
		if err := lines.Decode(&f); err != nil || f.Error != "502 Bad Gateway" || f.New != fresh || f.At.IsZero() {
			t.Errorf("failure %+v, %v", f, err)
		}
	}
	for _, fresh := range []bool{false, true} {
		var l lane
		if err := lines.Decode(&l); err != nil || l.New != fresh || l.Sent != 5 || l.Failed != 1 || l.Rate != 4 ||
			l.Errors["502 Bad Gateway"] != 1 {
			t.Errorf("lane %+v, %v", l, err)
		}
	}
	if err := newBook(io.Discard, nil, 0).close(time.Second); err == nil {
		t.Error("no requests are no failure")
	}
}

func TestCause(t *testing.T) {
	for text, want := range map[string]string{
		`Get "http://10.0.0.1/": dial tcp 10.0.0.1:80: connect: connection refused`:                   "dial tcp 10.0.0.1:80: connect: connection refused",
		`Get "http://10.0.0.1/": read tcp 10.0.0.9:4711->10.0.0.1:80: read: connection reset by peer`: "read tcp 10.0.0.1:80: read: connection reset by peer",
		"503 Service Unavailable": "503 Service Unavailable",
	} {
		if got := cause(errors.New(text)); got != want {
			t.Errorf("%s\nis %s\nwant %s", text, got, want)
		}
	}
}

func TestStore(t *testing.T) {
	server := httptest.NewServer(values(t.TempDir()))
	defer server.Close()
	for _, test := range []struct {
		line, want string
	}{
		{"get " + server.URL + "/", "200 OK\nwell"},
		{"get " + server.URL + "/a", "404 Not Found\nthere is no such value\nexit code 1"},
		{"get -put one " + server.URL + "/a", "200 OK"},
		{"get -put two " + server.URL + "/a", "200 OK"},
		{"get -body " + server.URL + "/a", "two"},
		{"get " + server.URL + "/.next", "400 Bad Request\na name is of small letters, digits and dashes\nexit code 1"},
	} {
		if got := play(t, strings.Fields(test.line)...); got != test.want {
			t.Errorf("%s: %q; want %q", test.line, got, test.want)
		}
	}
}
