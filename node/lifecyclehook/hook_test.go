package lifecyclehook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/node/event"
)

// fakeRuntime runs commands with a set exit code and error.
type fakeRuntime struct {
	code int
	err  error
}

func (r fakeRuntime) ExecSync(context.Context, string, []string, time.Duration) ([]byte, int, error) {
	return []byte("output"), r.code, r.err
}

// eventRecorder records Events.
type eventRecorder struct{ events []string }

func (h *eventRecorder) Event(_ event.Subject, kind, reason, format string, args ...any) {
	h.events = append(h.events, kind+" "+reason+": "+fmt.Sprintf(format, args...))
}

// runHook runs a handler, and returns the error as a text.
func runHook(t *testing.T, r fakeRuntime, h *eventRecorder, ips []netip.Addr, handler corev1.LifecycleHandler) string {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}
	if err := New(r, h, nil).Run(t.Context(), p, &corev1.Container{Name: "c"}, "id", ips, &handler); err != nil {
		return err.Error()
	}
	return ""
}

func TestExec(t *testing.T) {
	h := corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"a", "b"}}}
	for _, x := range []struct {
		fakeRuntime
		want string
	}{
		{fakeRuntime{}, ""},
		{fakeRuntime{code: 3}, `Exec lifecycle hook ([a b]) for Container "c" in Pod "p_n(u)" failed - error: command 'a b' exited with 3: output, message: "output"`},
		{fakeRuntime{err: errors.New("gone")}, `Exec lifecycle hook ([a b]) for Container "c" in Pod "p_n(u)" failed - error: gone, message: "output"`},
	} {
		if got := runHook(t, x.fakeRuntime, &eventRecorder{}, nil, h); got != x.want {
			t.Errorf("got %s\nwant %s", got, x.want)
		}
	}
}

func TestHTTP(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, fmt.Sprintf("%s %s %s", r.URL.Path, r.Header.Get("User-Agent"), r.Header.Get("Authorization")))
		http.Error(w, "any status is accepted", http.StatusTeapot)
	}))
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	get := &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromInt(n),
		HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}}}
	handler := corev1.LifecycleHandler{HTTPGet: get}
	ips := []netip.Addr{netip.MustParseAddr(host)}
	recorder := &eventRecorder{}
	if msg := runHook(t, fakeRuntime{}, recorder, ips, handler); msg != "" || len(recorder.events) > 0 {
		t.Errorf("http: %s %v", msg, recorder.events)
	}
	get.Scheme = corev1.URISchemeHTTPS
	if msg := runHook(t, fakeRuntime{}, recorder, ips, handler); msg != "" {
		t.Errorf("https: %s", msg)
	}
	wantEvent := "Warning LifecycleHTTPFallback: request to HTTPS lifecycle hook " + s.Listener.Addr().String() +
		" got HTTP response, retry with HTTP succeeded"
	if strings.Join(recorder.events, "\n") != wantEvent {
		t.Errorf("events %q, want %q", recorder.events, wantEvent)
	}
	if want := "/x kube-lifecycle/1.37 secret,/x kube-lifecycle/1.37 "; strings.Join(got, ",") != want {
		t.Errorf("requests %q, want %q", got, want)
	}
	if msg := runHook(t, fakeRuntime{}, recorder, nil, handler); !strings.Contains(msg, "failed to find networking container") {
		t.Errorf("without an address: %s", msg)
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}
		begin := time.Now()
		if msg := runHook(t, fakeRuntime{}, &eventRecorder{}, nil, h); msg != "" || time.Since(begin) != 5*time.Second {
			t.Errorf("%s after %s", msg, time.Since(begin))
		}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		err := New(fakeRuntime{}, &eventRecorder{}, nil).Run(ctx, &corev1.Pod{}, &corev1.Container{Name: "c"}, "id", nil, &h)
		if err == nil || !strings.HasSuffix(err.Error(), "failed - error: container terminated before sleep hook finished") ||
			time.Since(begin) != 7*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

func TestTCPSocketIsNotRun(t *testing.T) {
	got := runHook(t, fakeRuntime{}, &eventRecorder{}, nil,
		corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(80)}})
	if !strings.HasPrefix(got, "Cannot run handler: invalid handler: ") {
		t.Error(got)
	}
}

// TestHTTPRedirects checks that the response of a container cannot make the node call another host; redirects to the same host
// are followed.
func TestHTTPRedirects(t *testing.T) {
	var got []string
	mux := http.NewServeMux()
	// nothing listens there, so following the redirect fails
	mux.Handle("/away", http.RedirectHandler("http://localhost:1/elsewhere", http.StatusTemporaryRedirect))
	mux.Handle("/on", http.RedirectHandler("/there", http.StatusTemporaryRedirect))
	mux.HandleFunc("/there", func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.URL.Path) })
	s := httptest.NewServer(mux)
	defer s.Close()
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	for _, path := range []string{"/away", "/on"} {
		get := &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(int(at.Port()))}
		if msg := runHook(t, fakeRuntime{}, &eventRecorder{}, []netip.Addr{at.Addr()}, corev1.LifecycleHandler{HTTPGet: get}); msg != "" {
			t.Errorf("%s: %s", path, msg)
		}
	}
	if strings.Join(got, ",") != "/there" {
		t.Errorf("requests %q", got)
	}
}
