package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/run"
)

// learner learns from the server what all nodes of the cluster must agree about, such as the ranges of Pods and Services.
type learner struct {
	client client.Client
	// file keeps what was learned, for a start while the server is away.
	file string
	log  *slog.Logger
}

// The server is asked for learnFor before an agent goes on with what it has learned earlier, each time again after learnPause.
const (
	learnFor   = 5 * time.Second
	learnPause = time.Second
)

// learn returns the settings of the cluster; nil for a cluster that has never published any, such as one of another API server.
func (l *learner) learn(ctx context.Context) (map[string]string, error) {
	begin := time.Now()
	for {
		o, err := l.client.Get(ctx, gr.ConfigMaps, metav1.NamespaceSystem, run.ClusterSettings, "")
		if m, ok := o.(*corev1.ConfigMap); err == nil && ok {
			var now map[string]string
			if now, err = run.ReadSettings(m.Data); err == nil {
				return now, l.keep(now)
			}
		}
		if (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) && l.kept() == nil {
			l.log.WarnContext(ctx, "the cluster does not tell its settings to nodes; make sure that the flags of this agent are those of the cluster",
				"flags", "--cluster-cidr --service-cidr --cluster-dns --cluster-domain", "err", err)
			return nil, nil
		}
		if kept := l.kept(); kept != nil && time.Since(begin) >= learnFor {
			l.log.WarnContext(ctx, "the settings of the cluster cannot be learned; those that it had the last time count", "err", err)
			return kept, nil
		}
		l.log.ErrorContext(ctx, "the settings of the cluster cannot be learned yet", "err", err)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(learnPause):
		}
	}
}

// follow returns the settings of the cluster when they are no longer those that were learned, or nil when ctx ends. Settings that cannot be
// used, or that lack some that were learned, do not count: the node goes on.
func (l *learner) follow(ctx context.Context, learned map[string]string) map[string]string {
	if learned == nil {
		<-ctx.Done()
		return nil
	}
	for {
		view, err := l.client.Part(ctx, gr.ConfigMaps, client.Scope{Namespace: metav1.NamespaceSystem, Name: run.ClusterSettings})
		if err == nil {
			for e := range view.Events(ctx) {
				m, ok := e.Object.(*corev1.ConfigMap)
				if !ok || e.Deleted {
					continue
				}
				now, err := run.ReadSettings(m.Data)
				if err != nil || lacks(now, learned) {
					l.log.ErrorContext(ctx, "the ConfigMap with the settings of the cluster was damaged; the node goes on with those that it has until the server has written them anew",
						"configMap", run.ClusterSettings, "err", err, "now", now, "have", learned)
					continue
				}
				if !maps.Equal(now, learned) {
					return now
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(learnPause):
		}
	}
}

// lacks tells whether settings that were learned are gone.
func lacks(now, learned map[string]string) bool {
	for name := range learned {
		if _, has := now[name]; !has {
			return true
		}
	}
	return false
}

func (l *learner) keep(data map[string]string) error {
	text, err := json.Marshal(data)
	if err == nil {
		err = os.WriteFile(l.file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the settings of the cluster: %w", err)
	}
	return nil
}

// kept are the settings that were learned the last time, nil if none were.
func (l *learner) kept() (out map[string]string) {
	text, err := os.ReadFile(l.file)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.log.Warn("the settings of the cluster that were kept cannot be read", "err", err)
		}
		return nil
	}
	return out
}

// settingsFile is where an agent keeps the settings of its cluster.
func settingsFile(dataDir string) string {
	return filepath.Join(nodeDir(dataDir), "cluster-settings.json")
}

// runAs runs the node with the settings of the cluster, and again with others when the cluster has got others. It returns when ctx ends,
// or when the cluster contradicts the flags of the agent.
func (c *agent) runAs(ctx context.Context, l *learner, learned map[string]string, run func(context.Context, *agent)) error {
	for {
		config, err := c.Agree(learned)
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		changed := make(chan map[string]string, 1)
		go func() {
			defer stop()
			changed <- l.follow(running, learned)
		}()
		run(running, &agent{config})
		stop()
		next := <-changed
		if ctx.Err() != nil {
			return nil
		}
		if next == nil {
			continue
		}
		l.log.WarnContext(ctx, "the cluster has other settings; the node starts again with them", "before", learned, "now", next)
		if learned = next; l.keep(next) != nil {
			l.log.WarnContext(ctx, "the settings of the cluster cannot be kept", "file", l.file)
		}
	}
}
