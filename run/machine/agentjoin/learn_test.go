package agentjoin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/run/settings"
)

// TestAgentReadsClusterSettings has an agent join a cluster with other than the default ranges, with only the flags that "proa
// token create" prints. The agent gets the cluster's settings, restarts when they change, and rejects flags that contradict them.
func TestAgentReadsClusterSettings(t *testing.T) {
	j := &testCluster{proatest.Start(t, proatest.Memory(), func(c *run.Config) {
		c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")}
		c.Node.ClusterDomain = "example.test"
		c.Node.BalancerRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		withoutPublisher(c)
	}), x509.NewCertPool()}
	j.pool.AppendCertsFromPEM(j.Config.CAData)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	a := j.agent(t, "new", "aaaaaa", "")
	load := func(flags settings.Values) Agent {
		c, err := settings.LoadAgent(settings.AgentCluster{Server: a.Server, Token: a.Token}, flags)
		if err != nil {
			t.Fatal(err)
		}
		return Agent{c}
	}
	cert, _, err := a.Join(ctx, dir, j.pool, log)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := remote.New(ctx,
		remote.Config{URL: a.Server, Agent: "test", Log: log,
			TLS: &tls.Config{RootCAs: j.pool, GetClientCertificate: cert.Present, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	l := &SettingsReader{Client: kubelet, File: filepath.Join(dir, "settings.json"), Log: log}
	learned, err := l.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := load(settings.Values{"node": {"new"}})
	got, err := c.WithClusterSettings(learned)
	if text := fmt.Sprintf("%v %v %v %v %v %v", got.ServiceCIDRs, got.ClusterCIDRs(), got.DNSAddresses(), got.Node.ClusterDomain,
		got.Node.BalancerRanges, err); text !=
		"[10.77.0.0/16] [10.244.0.0/16] [10.77.0.10] example.test [203.0.113.0/24] <nil>" {
		t.Errorf("the agent has %s", text)
	}
	for flag, value := range map[string]string{"service-cidr": "10.96.0.0/16", "cluster-cidr": "10.9.0.0/16", "cluster-dns": "10.77.0.11",
		"cluster-domain": "cluster.local"} {
		c := load(settings.Values{flag: {value}})
		if _, err := c.WithClusterSettings(learned); err == nil ||
			!strings.Contains(err.Error(), "--"+flag+" "+value+" contradicts the cluster, which has "+learned[flag]) {
			t.Errorf("--%s %s: %v", flag, value, err)
		}
		c = load(settings.Values{flag: {learned[flag]}})
		if _, err := c.WithClusterSettings(learned); err != nil {
			t.Errorf("the same as the cluster's: %v", err)
		}
	}
	// The settings of the cluster change: the node is restarted with the new ones.
	var seen []string
	err = c.RunWithSettings(ctx, l, learned, func(ctx context.Context, c *Agent) {
		seen = append(seen, fmt.Sprint(c.ClusterCIDRs()))
		if len(seen) > 1 {
			stop()
			return
		}
		o, err := j.Client.Get(t.Context(), gr.ConfigMaps, "kube-system", settings.ClusterSettingsName, "")
		if err != nil {
			t.Error(err)
			return
		}
		next := o.(*corev1.ConfigMap).DeepCopy()
		next.Data["cluster-cidr"] = "10.9.0.0/16"
		if _, err := j.Client.Update(t.Context(), gr.ConfigMaps, next, ""); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
	})
	if fmt.Sprint(seen, err) != "[[10.244.0.0/16] [10.9.0.0/16]] <nil>" {
		t.Errorf("the node ran with %v, then %v", seen, err)
	}
}

// withoutPublisher disables the controller that restores the published settings of the cluster, so that a test can change them.
func withoutPublisher(c *run.Config) { c.Controllers = []string{"*", "-cluster-settings-publisher"} }

// TestClusterSettingsAreRestored checks that the published settings are restored soon after they were deleted or
// changed.
func TestClusterSettingsAreRestored(t *testing.T) {
	j := proatest.Start(t, proatest.Memory())
	get := func() map[string]string {
		o, err := j.Client.Get(t.Context(), gr.ConfigMaps, "kube-system", settings.ClusterSettingsName, "")
		if m, ok := o.(*corev1.ConfigMap); err == nil && ok {
			return m.Data
		}
		return nil
	}
	want := get()
	for name, damage := range map[string]func() error{
		"deleted": func() error {
			return j.Client.Delete(t.Context(), gr.ConfigMaps, "kube-system", settings.ClusterSettingsName, metav1.DeleteOptions{})
		},
		"changed": func() error {
			_, err := j.Client.Update(t.Context(), gr.ConfigMaps,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: settings.ClusterSettingsName}}, "")
			return err
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); !maps.Equal(get(), want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the settings stay %v", name, get())
			}
		}
	}
}

// unreachableClient is a client of a server that does not answer.
type unreachableClient struct{ client.Client }

func (unreachableClient) Get(context.Context, schema.GroupResource, string, string, string) (kind.Object, error) {
	return nil, errors.New("connection refused")
}

// TestStoredSettingsWhileServerIsUnreachable checks that an agent uses the settings that it has stored while the server does not
// answer, and does not start without any.
func TestStoredSettingsWhileServerIsUnreachable(t *testing.T) {
	l := &SettingsReader{Client: unreachableClient{}, File: filepath.Join(t.TempDir(), "settings.json"), Log: slog.New(slog.DiscardHandler)}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if got, err := l.Read(ctx); err == nil {
			t.Errorf("an agent without stored settings starts with %v", got)
		}
	})
	if err := l.store(map[string]string{"cluster-cidr": "10.9.0.0/16"}); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if got, err := l.Read(t.Context()); err != nil || got["cluster-cidr"] != "10.9.0.0/16" {
			t.Errorf("%v %v", got, err)
		}
	})
}

// fixedClient is a client whose Get always has the same result.
type fixedClient struct {
	client.Client
	answer kind.Object
	err    error
}

func (c fixedClient) Get(context.Context, schema.GroupResource, string, string, string) (kind.Object, error) {
	return c.answer, c.err
}

// TestInvalidClusterSettingsAreIgnoredAtStart checks that an agent starts with its stored settings when the ConfigMap is deleted
// or invalid.
func TestInvalidClusterSettingsAreIgnoredAtStart(t *testing.T) {
	good := map[string]string{"cluster-cidr": "10.9.0.0/16", "cluster-domain": "example.test"}
	for name, c := range map[string]fixedClient{
		"deleted": {err: apierrors.NewNotFound(gr.ConfigMaps, settings.ClusterSettingsName)},
		"empty":   {answer: &corev1.ConfigMap{}},
		"mistyped": {answer: &corev1.ConfigMap{Data: map[string]string{"cluster-cidr": "10.9.0.0/16x",
			"cluster-domain": "example.test"}}},
		"with notes": {answer: &corev1.ConfigMap{Data: map[string]string{"cluster-cidr": "10.9.0.0/16", "cluster-domain": "example.test",
			"note": "x"}}},
	} {
		l := &SettingsReader{Client: c, File: filepath.Join(t.TempDir(), "settings.json"), Log: slog.New(slog.DiscardHandler)}
		if err := l.store(good); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			if got, err := l.Read(t.Context()); err != nil || !maps.Equal(got, good) {
				t.Errorf("%s: an agent starts with %v, %v", name, got, err)
			}
			if got := l.stored(); !maps.Equal(got, good) {
				t.Errorf("%s: the agent keeps %v", name, got)
			}
		})
	}
}

// TestInvalidClusterSettingsAreIgnoredWhileRunning makes the ConfigMap invalid in several ways while a node runs, and then changes
// a setting: only the latter restarts the node.
func TestInvalidClusterSettingsAreIgnoredWhileRunning(t *testing.T) {
	j := proatest.Start(t, proatest.Memory(), withoutPublisher)
	l := &SettingsReader{Client: j.Client, File: filepath.Join(t.TempDir(), "settings.json"), Log: slog.New(slog.DiscardHandler)}
	learned, err := l.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write := func(change func(map[string]string)) {
		o, err := j.Client.Get(t.Context(), gr.ConfigMaps, "kube-system", settings.ClusterSettingsName, "")
		if err != nil {
			t.Fatal(err)
		}
		next := o.(*corev1.ConfigMap).DeepCopy()
		next.Data = maps.Clone(learned)
		change(next.Data)
		if _, err := j.Client.Update(t.Context(), gr.ConfigMaps, next, ""); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan map[string]string, 1)
	for _, damage := range []func(map[string]string){
		func(d map[string]string) { clear(d) },
		func(d map[string]string) { d["service-cidr"] = "nonsense" },
		func(d map[string]string) { delete(d, "cluster-cidr") },
		func(d map[string]string) { d["note"] = "x" },
	} {
		write(damage)
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if now := l.waitForChange(ctx, learned); now != nil {
			t.Errorf("the node starts again with %v", now)
		}
		stop()
	}
	go func() { got <- l.waitForChange(t.Context(), learned) }()
	write(func(d map[string]string) { d["cluster-domain"] = "example.test" })
	if now := <-got; now["cluster-domain"] != "example.test" {
		t.Errorf("the node starts again with %v", now)
	}
}
