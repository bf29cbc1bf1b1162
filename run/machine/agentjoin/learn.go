package agentjoin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/settings"
)

// SettingsReader reads from the server the settings that must be the same on all nodes of the cluster, such as the
// ranges of Pods and Services.
type SettingsReader struct {
	Client client.Client
	// File stores the settings, for a start while the server cannot be reached.
	File string
	Log  *slog.Logger
}

// The server is asked for learnFor, with pauses of learnPause, before an agent uses the settings it has stored.
const (
	learnFor   = 5 * time.Second
	learnPause = time.Second
)

// Read returns the settings of the cluster; nil for a cluster that has never published any, such as one of another API
// server.
func (l *SettingsReader) Read(ctx context.Context) (map[string]string, error) {
	begin := time.Now()
	for {
		o, err := l.Client.Get(ctx, gr.ConfigMaps, metav1.NamespaceSystem, settings.ClusterSettingsName, "")
		if m, ok := o.(*corev1.ConfigMap); err == nil && ok {
			var now map[string]string
			if now, err = settings.ReadClusterSettings(m.Data); err == nil {
				return now, l.store(now)
			}
		}
		if (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) && l.stored() == nil {
			l.Log.WarnContext(ctx, "the cluster does not publish its settings for nodes; give this agent the flags of the cluster",
				"flags", "--cluster-cidr --service-cidr --cluster-dns --cluster-domain", "err", err)
			return nil, nil
		}
		if kept := l.stored(); kept != nil && time.Since(begin) >= learnFor {
			l.Log.WarnContext(ctx, "the settings of the cluster cannot be read; the stored ones are used", "err", err)
			return kept, nil
		}
		l.Log.ErrorContext(ctx, "the settings of the cluster cannot be read yet", "err", err)
		if wait.Sleep(ctx, learnPause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// waitForChange returns the settings of the cluster when they differ from those the node runs with, or nil when ctx
// ends. Settings that are invalid, or that lack some that were read before, are ignored: the node goes on.
func (l *SettingsReader) waitForChange(ctx context.Context, learned map[string]string) map[string]string {
	if learned == nil {
		<-ctx.Done()
		return nil
	}
	for {
		view, err := l.Client.Part(ctx, gr.ConfigMaps, client.Scope{Namespace: metav1.NamespaceSystem, Name: settings.ClusterSettingsName})
		if err == nil {
			for e := range view.Events(ctx) {
				m, ok := e.Object.(*corev1.ConfigMap)
				if !ok || e.Deleted {
					continue
				}
				now, err := settings.ReadClusterSettings(m.Data)
				if err != nil || lacks(now, learned) {
					l.Log.ErrorContext(ctx, "the ConfigMap with the settings of the cluster is invalid; the node keeps its settings until the server has written the ConfigMap again",
						"configMap", settings.ClusterSettingsName, "err", err, "now", now, "have", learned)
					continue
				}
				if !maps.Equal(now, learned) {
					return now
				}
			}
		}
		if wait.Sleep(ctx, learnPause) != nil {
			return nil
		}
	}
}

// lacks tells whether settings that were read before are missing now.
func lacks(now, learned map[string]string) bool {
	for name := range learned {
		if _, has := now[name]; !has {
			return true
		}
	}
	return false
}

func (l *SettingsReader) store(data map[string]string) error {
	text, err := json.Marshal(data)
	if err == nil {
		err = os.WriteFile(l.File, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("store the settings of the cluster: %w", err)
	}
	return nil
}

// stored returns the settings that were stored last; nil if there are none.
func (l *SettingsReader) stored() (out map[string]string) {
	text, err := os.ReadFile(l.File)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.Log.Warn("the stored settings of the cluster cannot be read", "err", err)
		}
		return nil
	}
	return out
}
