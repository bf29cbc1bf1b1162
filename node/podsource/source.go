// Package podsource lists the Pods that a node is to run: those that the API binds to it, and static Pods from a folder
// of manifests and from a URL. It merges them into one stream of updates, and maintains a mirror Pod in the API for
// every static Pod, so that people see it there.
package podsource

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
)

// The names of the sources, as in the annotation of a static Pod.
const (
	FromAPI  = "api"
	FromFile = "file"
	FromURL  = "http"
)

// Config says where Pods come from.
type Config struct {
	// Node is the name of the node; UID returns the UID of its Node object, empty as long as it is not known.
	Node string
	UID  func() types.UID
	// Client reads Pods and writes mirror Pods; nil for a node without a cluster.
	Client client.Client
	// Folder holds static manifests, or is one itself; URL serves them, requested with Header. Empty for none.
	Folder, URL string
	Header      http.Header
	// FolderEvery and URLEvery are the periods of reading them: 20 seconds if they are 0.
	FolderEvery, URLEvery time.Duration
	// IsRunning reports whether a removed static Pod still runs: its mirror Pod stays until it has ended.
	IsRunning func(types.UID) bool
	Log       *slog.Logger
}

// Update is a change of the Pods that the node is to run.
type Update struct {
	// Pod is the new version, or the last one if Gone. It is shared and must not be changed. It is nil if only Complete
	// has changed.
	Pod  *corev1.Pod
	Gone bool
	// Complete reports that every source has listed all its Pods, now or before. Only then are Pods that are not listed
	// unwanted.
	Complete bool
}

// Source merges the sources of Pods.
type Source struct {
	Config
	mirrorsChanged wait.Signal // the mirror Pods must be reconciled
	batches        chan batch

	mu      sync.Mutex // guards what follows
	wanted  map[string]map[types.UID]*corev1.Pod
	listed  map[string]bool
	mirrors map[name]*corev1.Pod
	watched bool // the API has listed all its Pods
}

// name is the namespace and name of a Pod.
type name struct{ namespace, name string }

func nameOf(p *corev1.Pod) name { return name{p.Namespace, p.Name} }

// batch is what a source reports: all its Pods (whole), or single changes.
type batch struct {
	source string
	all    []*corev1.Pod
	whole  bool
	gone   bool
}

// New makes a Source.
func New(c Config) *Source {
	if c.FolderEvery == 0 {
		c.FolderEvery = 20 * time.Second
	}
	if c.URLEvery == 0 {
		c.URLEvery = 20 * time.Second
	}
	return &Source{
		Config: c, mirrorsChanged: wait.NewSignal(), batches: make(chan batch), mirrors: map[name]*corev1.Pod{}, listed: map[string]bool{},
		wanted: map[string]map[types.UID]*corev1.Pod{},
	}
}

// Updates yields changes, beginning with all existing Pods, until ctx ends. It may be used once.
func (s *Source) Updates(ctx context.Context) iter.Seq[Update] {
	return func(yield func(Update) bool) {
		ctx, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		for _, source := range s.sources() {
			wg.Go(func() { source.run(ctx) })
		}
		if s.Client != nil {
			wg.Go(func() { s.runMirrors(ctx) })
		}
		if s.complete() && !yield(Update{Complete: true}) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case b := <-s.batches:
				for _, u := range s.merge(b) {
					if !yield(u) {
						return
					}
				}
			}
		}
	}
}

// named is a source with its name.
type named struct {
	name string
	run  func(context.Context)
}

func (s *Source) sources() (out []named) {
	if s.Client != nil {
		out = append(out, named{FromAPI, s.watchAPI})
	}
	if s.Folder != "" {
		out = append(out, named{FromFile, s.watchFolder})
	}
	if s.URL != "" {
		out = append(out, named{FromURL, s.pollURL})
	}
	return out
}

// complete reports whether every source has listed all its Pods.
func (s *Source) complete() bool {
	return !slices.ContainsFunc(s.sources(), func(n named) bool { return !s.listed[n.name] })
}

// send sends a batch to Updates.
func (s *Source) send(ctx context.Context, b batch) {
	select {
	case <-ctx.Done():
	case s.batches <- b:
	}
}

// merge applies a batch, and returns the resulting updates.
func (s *Source) merge(b batch) (out []Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.source == fromMirror {
		return []Update{{Pod: b.all[0], Complete: s.complete()}}
	}
	have := s.wanted[b.source]
	if have == nil {
		have = map[types.UID]*corev1.Pod{}
		s.wanted[b.source] = have
	}
	listed := map[types.UID]bool{}
	for _, p := range b.all {
		listed[p.UID] = true
	}
	if b.whole {
		// Removed Pods come first: a Pod of the same name may replace one.
		for _, uid := range slices.Sorted(maps.Keys(have)) {
			if !listed[uid] {
				out = append(out, Update{Pod: have[uid], Gone: true})
				delete(have, uid)
			}
		}
	}
	for _, p := range b.all {
		switch old := have[p.UID]; {
		case b.gone && old != nil:
			delete(have, p.UID)
			out = append(out, Update{Pod: p, Gone: true})
		case b.gone || old != nil && old.ResourceVersion == p.ResourceVersion && p.ResourceVersion != "":
		case old != nil && b.source != FromAPI:
			// A static Pod with another content has another UID.
		default:
			have[p.UID] = p
			out = append(out, Update{Pod: p})
		}
	}
	before := s.complete()
	s.listed[b.source] = s.listed[b.source] || b.whole
	after := s.complete()
	for i := range out {
		out[i].Complete = before
	}
	if after && !before {
		out = append(out, Update{Complete: true})
	}
	if b.source != FromAPI {
		s.mirrorsChanged.Send()
	}
	return out
}

// statics returns the static Pods, sorted by name.
func (s *Source) statics() (out []*corev1.Pod) {
	for source, pods := range s.wanted {
		if source != FromAPI {
			out = slices.AppendSeq(out, maps.Values(pods))
		}
	}
	slices.SortFunc(out, byName)
	return out
}
