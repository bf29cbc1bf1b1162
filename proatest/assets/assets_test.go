package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"proa.dev/run"
)

func TestFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--secure-port=1 --secure-port=2", ""},
		{"--service-cluster-ip-range=10.0.0.0/24 --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount", ""},
		{"--help", ""},
		{"--tls-cert-file=x", "unknown flag: --tls-cert-file=x"},
		{"secure-port=1", "unknown flag: secure-port=1"},
	} {
		_, err := parse(strings.Fields(tt.args), apiFlags())
		if got := message(err); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.args, got, tt.want)
		}
	}
	given, err := parse([]string{"--service-cluster-ip-range=10.0.0.0/24", "--etcd-servers=http://127.0.0.1:1", "--listen=127.0.0.1:1",
		"--listen=127.0.0.1:2"}, apiFlags())
	if err != nil {
		t.Fatal(err)
	}
	c := run.Default()
	if err := given.settings(&c); err != nil {
		t.Fatal(err)
	}
	if got := []any{c.ServiceCIDRs[0].String(), len(c.EtcdServers), c.Listen}; !reflect.DeepEqual(got,
		[]any{"10.0.0.0/24", 0, "127.0.0.1:2"}) {
		t.Errorf("the settings are %v", got)
	}
	var help bytes.Buffer
	printFlags(&help, apiFlags())
	if !strings.Contains(help.String(), "\n      --feature-gates string\n") || strings.Contains(help.String(), "insecure-port") {
		t.Errorf("the help is %s", help.String())
	}
}

func TestNames(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if err := play(t.Context(), log, "kubelet", nil); message(err) != "this program is called kube-apiserver or etcd, not kubelet" {
		t.Errorf("under another name it says %v", err)
	}
	if err := play(t.Context(), log, "kube-apiserver",
		[]string{"--secure-port=1"}); message(err) != "--cert-dir is missing: data are kept there too" {
		t.Errorf("without a folder it says %v", err)
	}
	missing := filepath.Join(t.TempDir(), "no")
	if err := trust(t.TempDir(), missing); err == nil || !strings.HasPrefix(err.Error(), "--client-ca-file: ") {
		t.Errorf("without an authority it says %v", err)
	}
}

// TestEtcdIsHealthy checks that the health check that envtest sends to etcd succeeds.
func TestEtcdIsHealthy(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- healthy(ctx, listener) }()
	client := &http.Client{Timeout: time.Minute}
	resp, err := client.Get("http://" + listener.Addr().String() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(body) != `{"health":"true"}` {
		t.Errorf("it answers %q, %v", body, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
