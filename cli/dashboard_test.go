package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/dashboardproxy"
)

// answers is a transport that always answers with the same code.
type answers int

// RoundTrip answers.
func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

// TestCredentialsAreReadAgain holds that a dashboard outlives the token of a credential plugin, and does not ask for another one with
// every refused request.
func TestCredentialsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		opened := 0
		next := http.RoundTripper(answers(http.StatusUnauthorized))
		open := func(context.Context) (http.RoundTripper, error) {
			opened++
			return next, nil
		}
		c := &reloadingCluster{ctx: t.Context(), transport: answers(http.StatusUnauthorized), open: open}
		send := func(body io.Reader) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://cluster/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		for range 3 {
			if code := send(nil); code != http.StatusUnauthorized || opened != 1 {
				t.Fatalf("%d, and the kubeconfig was read %d times", code, opened)
			}
		}
		next = answers(http.StatusOK)
		time.Sleep(minReload)
		// A body is gone once it was sent: the client has to send it again.
		if code := send(strings.NewReader("body")); code != http.StatusUnauthorized || opened != 2 {
			t.Errorf("a request with a body got %d, and the kubeconfig was read %d times", code, opened)
		}
		if code := send(nil); code != http.StatusOK || opened != 2 {
			t.Errorf("with new credentials a request got %d, and the kubeconfig was read %d times", code, opened)
		}
	})
}

// TestDashboardEnds holds that the command ends with its context, and that it prints the address and the code.
func TestDashboardEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out := &stopAt{text: "Ctrl-C ends it.", stop: stop}
	config := dashboardproxy.Config{Cluster: answers(http.StatusOK), Server: "https://cluster\x1b[31m"}
	err := serveDashboard(ctx, &command.Env{Out: out, Err: out}, 0, false, config)
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
	printed := out.String()
	if !strings.Contains(printed, "http://127.0.0.1:") || strings.Contains(printed, "\x1b") {
		t.Errorf("it printed %q", printed)
	}
}

// stopAt is an output that stops a command once it has printed a text.
type stopAt struct {
	bytes.Buffer
	text string
	stop func()
}

// Write adds output.
func (s *stopAt) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.stop()
	}
	return n, err
}

func TestDashboardArguments(t *testing.T) {
	for _, args := range [][]string{{"dashboard", "pods"}, {"dashboard", "--port", "70000"}, {"dashboard", "--kubeconfig", "/none"}} {
		var b bytes.Buffer
		err := runCommand(t.Context(), &command.Env{Out: &b, Err: &b}, args)
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("proa %s: %v", strings.Join(args, " "), err)
		}
	}
}
