package volumes

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// assumed has volumes and claims as they will be when the Pods that use them are bound. An assumed object is used until
// the object itself changes.
type assumed struct {
	mu      sync.Mutex // guards the maps
	volumes map[string]*corev1.PersistentVolume
	claims  map[string]*corev1.PersistentVolumeClaim // by namespace/name
}

func newAssumed() *assumed {
	return &assumed{volumes: map[string]*corev1.PersistentVolume{}, claims: map[string]*corev1.PersistentVolumeClaim{}}
}

func (a *assumed) volume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	a.mu.Lock()
	defer a.mu.Unlock()
	if will := a.volumes[v.Name]; will != nil {
		if will.UID == v.UID && will.ResourceVersion == v.ResourceVersion {
			return will
		}
		delete(a.volumes, v.Name)
	}
	return v
}

func (a *assumed) claim(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := c.Namespace + "/" + c.Name
	if will := a.claims[key]; will != nil {
		if will.UID == c.UID && will.ResourceVersion == c.ResourceVersion {
			return will
		}
		delete(a.claims, key)
	}
	return c
}

// podBinding has the writes for the volumes of one Pod that has a node.
type podBinding struct {
	*volumeBinding
	pod     *corev1.Pod
	volumes []*corev1.PersistentVolume      // to write, with a reference to their claims
	claims  []*corev1.PersistentVolumeClaim // to write, with the node on which their volume is to be provisioned
	bound   []*corev1.PersistentVolumeClaim // the claims of the volumes
}

// reserve assumes the volumes and claims of a plan, so that no other Pod gets them.
func (w *podBinding) reserve(node string, plan *volumePlan) *framework.Rejection {
	if plan == nil {
		return framework.Failed(fmt.Errorf("no pod volume found for node %q", node))
	}
	w.assumed.mu.Lock()
	defer w.assumed.mu.Unlock()
	for _, m := range plan.bind {
		v, changed := boundTo(m.volume, m.claim)
		if changed {
			w.assumed.volumes[v.Name] = v
		}
		w.volumes, w.bound = append(w.volumes, v), append(w.bound, m.claim)
	}
	for _, p := range plan.provision {
		claim := p.claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, annSelectedNode, node)
		w.assumed.claims[claim.Namespace+"/"+claim.Name] = claim
		w.claims = append(w.claims, claim)
	}
	return nil
}

// boundTo returns a volume with a reference to a claim, and whether that is a change.
func boundTo(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, bool) {
	out, changed := v.DeepCopy(), false
	if !isReservedFor(v, claim) && out.Annotations[annBoundByController] == "" {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, annBoundByController, "yes")
		changed = true
	}
	if ref := v.Spec.ClaimRef; ref == nil || ref.Name != claim.Name || ref.Namespace != claim.Namespace || ref.UID != claim.UID {
		out.Spec.ClaimRef = &corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			ResourceVersion: claim.ResourceVersion,
		}
		changed = true
	}
	return out, changed
}

// unreserve undoes reserve. Objects that are written already are not changed back; the next attempt finds them.
func (w *podBinding) unreserve() {
	w.assumed.mu.Lock()
	defer w.assumed.mu.Unlock()
	for _, v := range w.volumes {
		if w.assumed.volumes[v.Name] == v {
			delete(w.assumed.volumes, v.Name)
		}
	}
	for _, c := range w.claims {
		if key := c.Namespace + "/" + c.Name; w.assumed.claims[key] == c {
			delete(w.assumed.claims, key)
		}
	}
	w.volumes, w.claims, w.bound = nil, nil, nil
}

// The volume controller and provisioners take a while; the pause between two looks at their work grows up to a second.
const (
	firstPoll   = 50 * time.Millisecond
	slowestPoll = time.Second
)

// preBind writes the volumes and claims, and waits until the claims are bound.
func (w *podBinding) preBind(ctx context.Context, node string) error {
	if len(w.volumes)+len(w.claims) == 0 {
		return nil
	}
	written := make([]kind.Object, 0, len(w.volumes)+len(w.claims))
	for _, v := range w.volumes {
		o, err := w.deps.Client.Update(ctx, gr.PersistentVolumes, v.DeepCopy(), "")
		if err != nil {
			return err
		}
		written = append(written, o)
	}
	for _, c := range w.claims {
		o, err := w.deps.Client.Update(ctx, gr.PersistentVolumeClaims, c.DeepCopy(), "")
		if err != nil {
			return err
		}
		written = append(written, o)
	}
	ctx, cancel := context.WithTimeout(ctx, w.args.Timeout)
	defer cancel()
	poll := wait.Backoff{First: firstPoll, Max: slowestPoll}
	for {
		done, err := w.isComplete(written, node)
		if err != nil {
			return fmt.Errorf("binding volumes: %w", err)
		}
		if done {
			return nil
		}
		if err := poll.Sleep(ctx); err != nil {
			return fmt.Errorf("binding volumes: %w", err)
		}
	}
}

// isComplete reports whether all claims are bound. It returns an error if that can no longer happen on this node.
func (w *podBinding) isComplete(written []kind.Object, node string) (bool, error) {
	c := w.deps.Views
	o, found := c.Get(gr.Nodes, "", node)
	if !found {
		return false, fmt.Errorf("failed to get node %q: node %q not found", node, node)
	}
	at := o.(*corev1.Node)
	if o, found := c.Get(gr.Pods, w.pod.Namespace, w.pod.Name); !found || o.GetUID() != w.pod.UID {
		return false, fmt.Errorf("pod does not exist any more: pod %q not found", w.pod.Name)
	}
	for i := range w.volumes {
		v, err := getVolume(c, w.volumes[i].Name)
		if err != nil {
			return false, fmt.Errorf("failed to check binding: %w", err)
		}
		claim, err := getClaim(c, w.bound[i].Namespace, w.bound[i].Name)
		if err != nil {
			return false, fmt.Errorf("failed to check binding: %w", err)
		}
		if framework.IsOlder(v, written[i]) {
			return false, nil
		}
		if !parseVolumeAffinity(v).isReachableFrom(at) {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q", v.Name, node)
		}
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
			return false, fmt.Errorf("ClaimRef got reset for pv %q", v.Name)
		}
		if !isBound(claim) {
			return false, nil
		}
	}
	for i := range w.claims {
		if done, err := w.isProvisioned(written[len(w.volumes)+i], at); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isProvisioned reports whether the volume of a claim is provisioned and bound.
func (w *podBinding) isProvisioned(written kind.Object, at *corev1.Node) (bool, error) {
	claim, err := getClaim(w.deps.Views, written.GetNamespace(), written.GetName())
	if err != nil {
		return false, fmt.Errorf("failed to check provisioning pvc: %w", err)
	}
	if framework.IsOlder(claim, written) {
		return false, nil
	}
	if claim.Annotations == nil {
		return false, fmt.Errorf("selectedNode annotation reset for PVC %q", claim.Name)
	}
	if claim.Annotations[annSelectedNode] != at.Name { // the provisioner failed, and requests another node
		return false, fmt.Errorf("provisioning failed for PVC %q", claim.Name)
	}
	if claim.Spec.VolumeName != "" {
		v, err := getVolume(w.deps.Views, claim.Spec.VolumeName)
		if err != nil {
			return false, nil //nolint:nilerr // the view of volumes is behind: it is checked again
		}
		if !parseVolumeAffinity(v).isReachableFrom(at) {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q", v.Name, at.Name)
		}
	}
	return isBound(claim), nil
}
