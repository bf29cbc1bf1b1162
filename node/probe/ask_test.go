package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/node/container"
	"proa.dev/test/ports"
)

func handler(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ok":
		fmt.Fprint(w, "fine")
	case "/bad":
		http.Error(w, "secret", http.StatusInternalServerError)
	case "/here":
		http.Redirect(w, r, "/ok", http.StatusFound)
	case "/away":
		http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
	case "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/slow":
		<-r.Context().Done()
	case "/big":
		fmt.Fprint(w, strings.Repeat("x", 3*maxOutput))
	case "/echo":
		fmt.Fprintf(w, "%s %s %q %q %s", r.Host, r.Header.Get("User-Agent"), r.Header.Values("Accept"), r.Header.Values("X-A"),
			r.URL.RawQuery)
	default:
		http.NotFound(w, r)
	}
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := net.LookupPort("tcp", p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHTTP(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(handler))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(handler))
	defer secure.Close()
	at := map[string]int{"HTTP": portOf(t, plain.Listener.Addr().String()), "HTTPS": portOf(t, secure.Listener.Addr().String())}
	header := func(pairs ...string) (out []corev1.HTTPHeader) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for _, x := range []struct {
		scheme, path string
		headers      []corev1.HTTPHeader
		want         string
	}{
		{"HTTP", "/ok", nil, "success fine"},
		{"HTTPS", "/ok", nil, "success fine"},
		{"HTTP", "/bad", nil, "failure HTTP probe failed with statuscode: 500"},
		{"HTTP", "/nowhere", nil, "failure HTTP probe failed with statuscode: 404"},
		{"HTTP", "/here", nil, "success fine"},
		{"HTTP", "/away", nil, "warning Probe terminated redirects, Response body: <a href=\"http://example.invalid/\">Found</a>.\n\n"},
		{"HTTP", "/loop", nil, "failure Get \"/loop\": stopped after 10 redirects"},
		{"HTTP", "/big", nil, "success " + strings.Repeat("x", maxOutput)},
		{"HTTP", "/echo?a=b", header("X-A", "1", "X-A", "2", "Host", "h.example"),
			`success h.example kube-probe/1.37 ["*/*"] ["1" "2"] a=b`},
		{"HTTP", "/echo", header("User-Agent", "me", "Accept", "", "Host", "h"), `success h me [] [] `},
	} {
		get := &corev1.HTTPGetAction{Scheme: corev1.URIScheme(x.scheme), Path: x.path, Port: intstr.FromString("web"),
			HTTPHeaders: x.headers}
		c := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(at[x.scheme])}}}
		out, err := newHTTPProber().get(t.Context(), get, target{container: c, ip: "127.0.0.1"}, time.Minute)
		if got := string(out.result) + " " + out.text; got != x.want || err != nil {
			t.Errorf("%s %s: got %q %v, want %q", x.scheme, x.path, got, err, x.want)
		}
	}
	get := &corev1.HTTPGetAction{Path: "/slow", Port: intstr.FromInt(at["HTTP"])}
	out, err := newHTTPProber().get(t.Context(), get, target{container: &corev1.Container{}, ip: "127.0.0.1"}, 50*time.Millisecond)
	if out.result != failure || !strings.Contains(out.text, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)") || err != nil {
		t.Errorf("slow: %v %v", out, err)
	}
	for _, p := range []intstr.IntOrString{intstr.FromString("missing"), intstr.FromInt(0), intstr.FromInt(70000)} {
		if out, err := newHTTPProber().get(t.Context(), &corev1.HTTPGetAction{Port: p}, target{container: &corev1.Container{}},
			time.Second); err == nil || out.result != unknown {
			t.Errorf("port %v: %v %v", p, out, err)
		}
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", ports.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	n := portOf(t, l.Addr().String())
	if out := connect(t.Context(), "127.0.0.1", n, time.Minute); out.result != success {
		t.Errorf("open: %v", out)
	}
	l.Close()
	if out := connect(t.Context(), "127.0.0.1", n, time.Minute); out.result != failure ||
		!strings.Contains(out.text, "connect: connection refused") {
		t.Errorf("closed: %v", out)
	}
}

func TestGRPC(t *testing.T) {
	serve := func(healthy bool) int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		if healthy {
			h := grpchealth.NewServer()
			h.SetServingStatus("good", healthv1.HealthCheckResponse_SERVING)
			h.SetServingStatus("bad", healthv1.HealthCheckResponse_NOT_SERVING)
			healthv1.RegisterHealthServer(s, h)
		}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return portOf(t, l.Addr().String())
	}
	closed := portOf(t, ports.Address(t))
	with, without := serve(true), serve(false)
	for _, x := range []struct {
		port    int
		service *string
		want    string
	}{
		{with, nil, "success service healthy"},
		{with, new("good"), "success service healthy"},
		{with, new("bad"), `failure service unhealthy (responded with "NOT_SERVING")`},
		{with, new("other"), "failure error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{without, nil, "failure error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{closed, nil, fmt.Sprintf(`failure timeout: failed to connect service "127.0.0.1:%d" within 300ms: context deadline exceeded`, closed)},
	} {
		timeout := time.Minute
		if x.port == closed {
			timeout = 300 * time.Millisecond
		}
		out := health(t.Context(), &corev1.GRPCAction{Port: int32(x.port), Service: x.service}, "127.0.0.1", timeout)
		if got := string(out.result) + " " + out.text; got != x.want {
			t.Errorf("%d %v: got %q, want %q", x.port, x.service, got, x.want)
		}
	}
}

// execFunc runs commands of probes.
type execFunc func() ([]byte, int, error)

func (f execFunc) ExecSync(context.Context, string, []string, time.Duration) ([]byte, int, error) {
	return f()
}

func TestExecOutputIsBounded(t *testing.T) {
	b := &Prober{Config: Config{Runner: execFunc(func() ([]byte, int, error) { return make([]byte, 5*maxOutput), 2, nil })}}
	out, err := b.exec(t.Context(), []string{"x"}, "id", time.Second)
	if err != nil || out.result != failure || len(out.text) != maxOutput {
		t.Errorf("%v %d %v", out.result, len(out.text), err)
	}
}

func TestExpand(t *testing.T) {
	env := []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}, {Name: "E"}}
	for _, x := range [][2]string{
		{"plain", "plain"}, {"$(A)", "1"}, {"x$(A)y$(B)z", "x1y$(A)z"}, {"$$(A)", "$(A)"}, {"$$$(A)", "$1"}, {"$(C)", "$(C)"},
		{"$", "$"}, {"a$", "a$"}, {"$(A", "$(A"}, {"$A", "$A"}, {"$()", "$()"}, {"$(E)", ""}, {"$(A)$", "1$"}, {"$$", "$"},
	} {
		if got, err := expand([]string{x[0]}, env); err != nil || got[0] != x[1] {
			t.Errorf("%s: got %s, want %s", x[0], got, x[1])
		}
	}
	large := []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1<<20)}}
	if _, err := expand(slices.Repeat([]string{strings.Repeat("$(A)", 4)}, 1000), large); !errors.Is(err, container.ErrTooLong) {
		t.Errorf("a command of four gigabytes: %v", err)
	}
}
