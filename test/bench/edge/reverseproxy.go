package main

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// runReverseProxy is the least that a reverse proxy in Go can be: that of the standard library, with one rule for
// everything and servers that never change, each in turn. It is what the ingress is measured beside.
func runReverseProxy(ctx context.Context, port int, servers string) error {
	list := strings.Split(servers, ",")
	var turn atomic.Uint64
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: list[turn.Add(1)%uint64(len(list))]})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	s := &http.Server{Addr: ":" + strconv.Itoa(port), Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	return s.ListenAndServe()
}
