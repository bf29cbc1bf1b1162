package podsource

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
)

// step is a change of one mirror Pod.
type step struct {
	create *corev1.Pod // a static Pod that needs a mirror Pod
	remove *corev1.Pod // a mirror Pod to be deleted
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// owner returns the UID of this node's Node object, empty as long as it is not known.
func (s *Source) owner() types.UID {
	if s.UID == nil {
		return ""
	}
	return s.UID()
}

// owns reports whether a mirror Pod belongs to this node: its controller is the Node. Admission lets only the node
// create such a Pod; the annotation alone may come from any user.
func (s *Source) owns(m *corev1.Pod) bool {
	c := metav1.GetControllerOf(m)
	return c != nil && c.APIVersion == "v1" && c.Kind == "Node" && c.Name == s.Node && c.UID == s.owner()
}

// plan compares static Pods with existing mirror Pods. A mirror Pod of another version, one that is being deleted, or
// one that the node does not own is replaced; that of a removed static Pod is deleted when the Pod has ended, and one
// that the node does not own at once.
func plan(statics []*corev1.Pod, mirrors map[name]*corev1.Pod, owns func(*corev1.Pod) bool, lives func(types.UID) bool) (out []step) {
	wanted := map[name]bool{}
	for _, p := range statics {
		m, found := mirrors[nameOf(p)]
		if wanted[nameOf(p)] {
			continue // two sources have it; the first one is shown
		}
		wanted[nameOf(p)] = true
		switch {
		case !found:
			out = append(out, step{create: p})
		case m.Annotations[corev1.MirrorPodAnnotationKey] != p.Annotations[hashAnnotation] || m.DeletionTimestamp != nil || !owns(m):
			out = append(out, step{remove: m}, step{create: p})
		}
	}
	for _, m := range slices.SortedFunc(maps.Values(mirrors), byName) {
		if !wanted[nameOf(m)] && (!owns(m) || !lives(types.UID(m.Annotations[corev1.MirrorPodAnnotationKey]))) {
			out = append(out, step{remove: m})
		}
	}
	return out
}

// runMirrors reconciles mirror Pods until ctx ends.
func (s *Source) runMirrors(ctx context.Context) {
	pause := time.Hour
	retry := wait.Backoff{First: time.Second, Max: time.Minute}
	for {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.mirrorsChanged:
		case <-t.C:
		}
		t.Stop()
		pause = time.Hour
		if later, err := s.reconcileMirrors(ctx); err != nil {
			s.Log.Error("the mirror Pods cannot be updated", "node", s.Node, "err", err)
			pause = retry.Next()
		} else {
			retry.Reset()
			if later {
				pause = time.Second
			}
		}
	}
}

// reconcileMirrors carries out the plan. later reports that mirror Pods wait for their Pods to end.
func (s *Source) reconcileMirrors(ctx context.Context) (later bool, err error) {
	lives := func(uid types.UID) bool {
		lives := s.IsRunning != nil && s.IsRunning(uid)
		later = later || lives
		return lives
	}
	s.mu.Lock()
	ready := s.watched && (s.Folder == "" || s.listed[FromFile]) && (s.URL == "" || s.listed[FromURL])
	statics, mirrors := s.statics(), maps.Clone(s.mirrors)
	s.mu.Unlock()
	if !ready {
		return false, nil // the sources send a signal when they are
	}
	if len(statics)+len(mirrors) > 0 && s.owner() == "" {
		return false, fmt.Errorf("the node %s is not registered yet, so nothing can be shown of its %d static Pods", s.Node, len(statics))
	}
	for _, x := range plan(statics, mirrors, s.owns, lives) {
		switch {
		case x.remove != nil:
			err = s.remove(ctx, x.remove)
		default:
			err = s.create(ctx, x.create)
		}
		if err != nil {
			return later, err
		}
	}
	return later, nil
}

func (s *Source) create(ctx context.Context, p *corev1.Pod) error {
	m := p.DeepCopy()
	m.UID, m.ResourceVersion, m.Status = "", "", corev1.PodStatus{}
	m.Annotations[corev1.MirrorPodAnnotationKey] = p.Annotations[hashAnnotation]
	// A mirror Pod must be owned by its Node: admission allows a node no other Pods.
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.Node, UID: s.owner(), Controller: new(true)}}
	_, err := s.Client.Create(ctx, gr.Pods, m)
	if apierrors.IsAlreadyExists(err) {
		return nil // the view will show whose it is
	}
	if err != nil {
		return fmt.Errorf("show the static Pod %s/%s in the API: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (s *Source) remove(ctx context.Context, m *corev1.Pod) error {
	err := s.Client.Delete(ctx, gr.Pods, m.Namespace, m.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(m.UID)},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete the mirror Pod %s/%s: %w", m.Namespace, m.Name, err)
}

// Mirror returns the mirror Pod of a static Pod.
func (s *Source) Mirror(p *corev1.Pod) (*corev1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, found := s.mirrors[nameOf(p)]
	if !found || !s.owns(m) || m.Annotations[corev1.MirrorPodAnnotationKey] != p.Annotations[hashAnnotation] {
		return nil, false
	}
	return m, true
}
