package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

// find returns the Pod of a request. One with another UID than the request has is another Pod.
func (s *Server) find(r *http.Request) (pod.Local, bool) {
	ns, name, uid := r.PathValue("ns"), r.PathValue("pod"), types.UID(r.PathValue("uid"))
	all := s.Pods.Pods()
	at := slices.IndexFunc(all, func(l pod.Local) bool {
		return l.Pod != nil && l.Pod.Namespace == ns && l.Pod.Name == name && (uid == "" || l.Pod.UID == uid)
	})
	if at < 0 {
		return pod.Local{}, false
	}
	return all[at], true
}

// runningIn is the run of a container that is under way.
func runningIn(l pod.Local, name string) (*fact.Container, bool) {
	if l.Facts == nil {
		return nil, false
	}
	c, found := l.Facts.Of(name)
	if !found || c.State != fact.Running {
		return nil, false
	}
	return c, true
}

// specOf is a container of a Pod, of whatever sort.
func specOf(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			return (*corev1.Container)(&e.EphemeralContainerCommon)
		}
	}
	return nil
}

// pods lists the Pods that shall be on the node.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	var all []corev1.Pod
	for _, l := range s.Pods.Pods() {
		if l.Pod != nil {
			all = append(all, *l.Pod)
		}
	}
	list(w, all)
}

// running lists the Pods that the runtime has, as far as it knows them.
func (s *Server) running(w http.ResponseWriter, _ *http.Request) {
	var all []corev1.Pod
	for _, l := range s.Pods.Pods() {
		f := l.Facts
		if f == nil {
			continue
		}
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name, UID: f.UID}}
		for i := range f.Containers {
			if c := &f.Containers[i]; c.State == fact.Running {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if len(p.Spec.Containers) > 0 {
			all = append(all, p)
		}
	}
	list(w, all)
}

func list(w http.ResponseWriter, all []corev1.Pod) {
	slices.SortFunc(all, func(a, b corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	answer(w, &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: all})
}

// life knows from the Pods of the node when runs of containers end.
type life struct{ pods Pods }

// lifeEvery is how often it looks; that costs nothing, and only while somebody follows a log.
const lifeEvery = 250 * time.Millisecond

// Ended looks until the run of a container is no longer under way.
func (l life) Ended(ctx context.Context, id string) <-chan struct{} {
	over := make(chan struct{})
	go func() { // ends with the run, or with whoever follows its log
		defer close(over)
		tick := time.NewTicker(lifeEvery)
		defer tick.Stop()
		for l.runs(id) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return over
}

func (l life) runs(id string) bool {
	for _, p := range l.pods.Pods() {
		if p.Facts == nil {
			continue
		}
		for i := range p.Facts.Containers {
			if c := &p.Facts.Containers[i]; c.ID == id {
				return c.State == fact.Running
			}
		}
	}
	return false
}
