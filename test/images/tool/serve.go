package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	quiet       bool
	page        string
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
	drain := f.Duration("drain", 0, "how long to let requests end after that, while no new ones are taken")
	quiet := f.Bool("quiet", false, "do not print requests")
	page := f.String("page", "", "a file to serve at /page")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !wait(ctx, *delay) {
		return nil
	}
	ended := make(chan int, 1)
	s := &site{out: out, quiet: *quiet, page: *page, exit: func(code int) {
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
		if *drain == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), *drain)
		defer cancel()
		return server.Shutdown(ctx)
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
	mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		if s.page == "" {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, s.page)
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.quiet {
			fmt.Fprintf(s.out, "%s %s from %s, %s\n", r.Method, r.URL, r.RemoteAddr, r.UserAgent())
		}
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
	put := f.String("put", "", "put this text instead")
	host := f.String("host", "", "the host to ask for, if it is not that of the URL")
	asPod := f.Bool("as-pod", false, "with the token of the Pod, trusting the cluster's authority")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("say which URL to get")
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	method, text := http.MethodGet, io.Reader(nil)
	if *put != "" {
		method, text = http.MethodPut, strings.NewReader(*put)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.Arg(0), text)
	if err != nil {
		return err
	}
	req.Host = *host
	client := http.DefaultClient
	if *asPod {
		if client, err = podClient(req); err != nil {
			return err
		}
	}
	resp, err := client.Do(req)
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

// podClient is a client that trusts the authority that Pods are given; the request gets the Pod's token.
func podClient(req *http.Request) (*http.Client, error) {
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token, err := os.ReadFile(dir + "token")
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(dir + "ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New(dir + "ca.crt holds no certificates")
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}, nil
}
