package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// site answers the requests of tests. Its switches can be turned from outside,
// so that probes can be made to fail and to work again.
type site struct {
	ready, live atomic.Bool
	out         io.Writer
	exit        func(code int)
}

func serve(ctx context.Context, out io.Writer, args []string) error {
	f := flags("serve")
	port := f.Int("port", 8080, "the port to listen on")
	delay := f.Duration("delay", 0, "how long to wait before listening")
	unready := f.Bool("unready", false, "begin not ready")
	readyAfter := f.Duration("ready-after", 0, "begin not ready, and get ready after this while")
	dieAfter := f.Duration("die-after", 0, "stop to be live after this while")
	linger := f.Duration("linger", 0, "how long to go on serving after SIGTERM")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !wait(ctx, *delay) {
		return nil
	}
	ended := make(chan int, 1)
	s := &site{out: out, exit: func(code int) {
		select {
		case ended <- code:
		default:
		}
	}}
	s.ready.Store(!*unready && *readyAfter == 0)
	s.live.Store(true)
	if *readyAfter > 0 {
		defer time.AfterFunc(*readyAfter, func() { s.ready.Store(true) }).Stop()
	}
	if *dieAfter > 0 {
		defer time.AfterFunc(*dieAfter, func() { s.live.Store(false) }).Stop()
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(*port))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(out, "serving on %s\n", listener.Addr())
	defer server.Close()
	select {
	case err := <-failed:
		return err
	case code := <-ended:
		return exitCode(code)
	case <-ctx.Done():
		time.Sleep(*linger)
		return nil
	}
}

func (s *site) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", s.gate(&s.ready, "ready"))
	mux.HandleFunc("/live", s.gate(&s.live, "live"))
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) {
		host, err := os.Hostname()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("/client", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.RemoteAddr) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, strings.Join(os.Environ(), "\n")) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	mux.HandleFunc("/request", describe)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		code := number(r, "code", http.StatusOK)
		if code < 200 || code > 599 {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/delay", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		wait(r.Context(), d)
		fmt.Fprintln(w, "waited", d)
	})
	mux.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "bye")
		s.exit(number(r, "code", 0))
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(s.out, "%s %s from %s, %s\n", r.Method, r.URL, r.RemoteAddr, r.UserAgent())
		mux.ServeHTTP(w, r)
	})
}

// gate answers 200 while a switch is on, and 503 while it is off. With ?set=on
// or ?set=off it turns the switch.
func (s *site) gate(on *atomic.Bool, what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch set := r.URL.Query().Get("set"); set {
		case "on", "off":
			on.Store(set == "on")
			fmt.Fprintln(w, what, set)
			return
		case "":
		default:
			http.Error(w, "set must be on or off", http.StatusBadRequest)
			return
		}
		if !on.Load() {
			http.Error(w, "not "+what, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, what)
	}
}

// describe prints a request as it came, for tests of what is on the way.
func describe(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.RequestURI, r.Proto, r.Host)
	_ = r.Header.Write(w)
}

func number(r *http.Request, key string, otherwise int) int {
	n, err := strconv.Atoi(r.URL.Query().Get(key))
	if err != nil {
		return otherwise
	}
	return n
}

// get prints the status and the body of an answer, and fails when it is not a good one.
func get(ctx context.Context, out io.Writer, args []string) error {
	f := flags("get")
	timeout := f.Duration("timeout", 10*time.Second, "how long to wait")
	body := f.Bool("body", false, "print the body alone")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("say which URL to get")
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Arg(0), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !*body {
		fmt.Fprintln(out, resp.Status)
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return exitCode(1)
	}
	return nil
}
