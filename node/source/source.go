// Package source brings the Pods that a node is to run: from the API those that are bound to it, and static ones from a folder
// of manifests and from a URL. It merges them into one stream, and keeps a mirror Pod in the API for every static one, so that
// people see it there.
package source

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
)

// The names of the sources, as they are in the annotation of a static Pod.
const (
	FromAPI  = "api"
	FromFile = "file"
	FromURL  = "http"
)

// Config says where Pods come from.
type Config struct {
	// Node is the name of the node, UID returns that of its Node, or "" as long as it is not known.
	Node string
	UID  func() types.UID
	// Client reads Pods and keeps mirrors; nil for a node that belongs to no cluster.
	Client client.Client
	// Folder has static manifests, or is one itself; URL serves them, asked with Header. Empty for none.
	Folder, URL string
	Header      http.Header
	// FolderEvery and URLEvery are how often they are read without a reason: 20 seconds if they are 0.
	FolderEvery, URLEvery time.Duration
	// Lives tells whether a static Pod that is no longer wanted still runs: its mirror stays until it does not.
	Lives func(types.UID) bool
	Log   *slog.Logger
}

// Update is a change of what the node is to run.
type Update struct {
	// Pod is wanted as it is, or was wanted if Gone. It is shared and read-only. It is nil if only Complete is news.
	Pod  *corev1.Pod
	Gone bool
	// Complete says that every source has told all it has, now or before. Only then is a Pod that nobody mentioned not wanted.
	Complete bool
}

// Source is where Pods come from.
type Source struct {
	Config
	tend chan struct{} // the mirrors need care
	news chan batch

	mu      sync.Mutex // guards what follows
	wanted  map[string]map[types.UID]*corev1.Pod
	seen    map[string]bool
	mirrors map[name]*corev1.Pod
	watched bool // the API has told all it has
}

// name is that of a Pod.
type name struct{ namespace, name string }

func nameOf(p *corev1.Pod) name { return name{p.Namespace, p.Name} }

// batch is what a source has to say: all it has, or single changes.
type batch struct {
	source string
	all    []*corev1.Pod
	whole  bool
	gone   bool
}

// New makes a source.
func New(c Config) *Source {
	if c.FolderEvery == 0 {
		c.FolderEvery = 20 * time.Second
	}
	if c.URLEvery == 0 {
		c.URLEvery = 20 * time.Second
	}
	return &Source{
		Config: c, tend: make(chan struct{}, 1), news: make(chan batch), mirrors: map[name]*corev1.Pod{}, seen: map[string]bool{},
		wanted: map[string]map[types.UID]*corev1.Pod{},
	}
}

// Updates yields what changes, beginning with all that is there, until ctx ends. It may be used once.
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
			wg.Go(func() { s.keepMirrors(ctx) })
		}
		if s.complete() && !yield(Update{Complete: true}) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case b := <-s.news:
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
		out = append(out, named{FromAPI, s.watch})
	}
	if s.Folder != "" {
		out = append(out, named{FromFile, s.follow})
	}
	if s.URL != "" {
		out = append(out, named{FromURL, s.poll})
	}
	return out
}

// complete says that every source was seen.
func (s *Source) complete() bool {
	return !slices.ContainsFunc(s.sources(), func(n named) bool { return !s.seen[n.name] })
}

// tell hands a batch on.
func (s *Source) tell(ctx context.Context, b batch) {
	select {
	case <-ctx.Done():
	case s.news <- b:
	}
}

// merge takes what a source says, and returns what is new about it.
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
	fresh := map[types.UID]bool{}
	for _, p := range b.all {
		fresh[p.UID] = true
	}
	if b.whole {
		// What goes comes first: a Pod of the same name may take its place.
		for _, uid := range slices.Sorted(maps.Keys(have)) {
			if !fresh[uid] {
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
	s.seen[b.source] = s.seen[b.source] || b.whole
	after := s.complete()
	for i := range out {
		out[i].Complete = before
	}
	if after && !before {
		out = append(out, Update{Complete: true})
	}
	if b.source != FromAPI {
		s.poke()
	}
	return out
}

func (s *Source) poke() {
	select {
	case s.tend <- struct{}{}:
	default:
	}
}

// statics are the static Pods that are wanted, in the order of their names.
func (s *Source) statics() (out []*corev1.Pod) {
	for source, pods := range s.wanted {
		if source != FromAPI {
			out = slices.AppendSeq(out, maps.Values(pods))
		}
	}
	slices.SortFunc(out, byName)
	return out
}
