package mutate

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/nodeaddress"
	"proa.dev/server/admittest"
)

func TestScripts(t *testing.T) {
	admittest.Run(t, func(config map[string][]byte) ([]kind.Plugin, error) { return Plugins(config, nodeCluster) })
}

// nodeCluster returns what the scripts about nodes assume about addresses in the cluster.
func nodeCluster() nodeaddress.Cluster {
	return nodeaddress.Cluster{
		Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		Ranges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}
}

// clusterWithLateAccount is a cluster that has the default ServiceAccount of a namespace only from a time on, or never.
type clusterWithLateAccount struct {
	kind.Server
	at time.Time
}

func (l clusterWithLateAccount) Get(_ context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	if l.at.IsZero() || time.Now().Before(l.at) {
		return nil, apierrors.NewNotFound(gr, name)
	}
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
}

// TestDefaultServiceAccountIsAwaited creates a Pod in a namespace that is too new to have its default ServiceAccount.
func TestDefaultServiceAccountIsAwaited(t *testing.T) {
	for _, c := range []struct {
		title, name string
		after       time.Duration // 0: never
		want        string
		waits       bool
	}{
		{"soon", "default", time.Second, "", true},
		{"never", "default", 0, `serviceaccount "default" not found`, true},
		{"too late", "default", time.Minute, `serviceaccount "default" not found`, true},
		{"an account with another name is not awaited", "robot", time.Second, `serviceaccount "robot" not found`, false},
	} {
		t.Run(c.title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				d := clusterWithLateAccount{}
				if c.after > 0 {
					d.at = start.Add(c.after)
				}
				_, err := findAccount(t.Context(), d, "new", c.name)
				if got := text(err); got != c.want {
					t.Errorf("got error %q, want %q", got, c.want)
				}
				if took := time.Since(start); took > 0 != c.waits || took > 2*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// TestWaitForServiceAccountIsCanceled cancels the request while it waits.
func TestWaitForServiceAccountIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := findAccount(ctx, clusterWithLateAccount{}, "new", "default"); err == nil || time.Since(start) > 200*time.Millisecond {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestGeneratedVolumeNames checks that the suffix of volumes has only characters that a name may have.
func TestGeneratedVolumeNames(t *testing.T) {
	for range 100 {
		if s := randomSuffix(); len(s) != 5 {
			t.Fatalf("suffix %q", s)
		}
	}
}

// BenchmarkUnrelatedWrite measures the plugins for a write that concerns none of them.
func BenchmarkUnrelatedWrite(b *testing.B) {
	a := &kind.Admission{Verb: "update", Def: core.ConfigMaps(), User: &user.DefaultInfo{Name: "bob"}, Object: &corev1.ConfigMap{},
		Old: &corev1.ConfigMap{}}
	plugins, err := Plugins(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range plugins {
			if p.DisabledByDefault {
				continue
			}
			if err := p.Admit(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	}
}
