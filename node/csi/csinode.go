package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// nodeIDs is the annotation of a Node with the node IDs that CSI drivers give it.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// maxAttempts is how often a write is repeated after a conflict.
const maxAttempts = 10

// CreateCSINode creates the CSINode of this node, without drivers. It retries until the Node exists.
func (d *Drivers) CreateCSINode(ctx context.Context) error {
	retry := wait.Backoff{First: 50 * time.Millisecond, Max: 10 * time.Second}
	for {
		err := d.editCSINode(ctx, func(*storagev1.CSINode) bool { return false })
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		d.Log.DebugContext(ctx, "the CSINode cannot be created yet", "err", err)
		if err := retry.Sleep(ctx); err != nil {
			return err
		}
	}
}

// publishDriver publishes a driver in the Node and the CSINode.
func (d *Drivers) publishDriver(ctx context.Context, name string, info *spec.NodeGetInfoResponse) error {
	topology := info.GetAccessibleTopology().GetSegments()
	entry := storagev1.CSINodeDriver{Name: name, NodeID: info.GetNodeId(), TopologyKeys: slices.Sorted(maps.Keys(topology))}
	if most := info.GetMaxVolumesPerNode(); most > 0 {
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(most, math.MaxInt32)))}
	}
	if err := d.editNode(ctx, func(n *corev1.Node) (bool, error) { return addDriver(n, name, info.GetNodeId(), topology) }); err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	err := d.editCSINode(ctx, func(n *storagev1.CSINode) bool {
		at := slices.IndexFunc(n.Spec.Drivers, func(o storagev1.CSINodeDriver) bool { return o.Name == name })
		if at < 0 {
			n.Spec.Drivers = append(n.Spec.Drivers, entry)
			return true
		}
		old := &n.Spec.Drivers[at]
		unchanged := old.NodeID == entry.NodeID && slices.Equal(old.TopologyKeys, entry.TopologyKeys) && count(old) == count(&entry)
		*old = entry
		return !unchanged
	})
	if err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	return nil
}

func count(d *storagev1.CSINodeDriver) int32 {
	if d.Allocatable == nil || d.Allocatable.Count == nil {
		return -1
	}
	return *d.Allocatable.Count
}

// removeDriverFromCluster removes a driver from the CSINode and the Node.
func (d *Drivers) removeDriverFromCluster(ctx context.Context, name string) error {
	err := d.editCSINode(ctx, func(n *storagev1.CSINode) bool {
		before := len(n.Spec.Drivers)
		n.Spec.Drivers = slices.DeleteFunc(n.Spec.Drivers, func(o storagev1.CSINodeDriver) bool { return o.Name == name })
		return len(n.Spec.Drivers) != before
	})
	if err != nil {
		return fmt.Errorf("error uninstalling CSI driver from CSINode object %w", err)
	}
	err = d.editNode(ctx, func(n *corev1.Node) (bool, error) { return removeDriver(n, name) })
	if err != nil {
		return fmt.Errorf("error removing CSI driver node info from Node object %w", err)
	}
	return nil
}

// addDriver sets the driver's node ID and topology labels on a Node.
func addDriver(n *corev1.Node, name, id string, topology map[string]string) (changed bool, err error) {
	ids, err := idsOf(n)
	if err != nil {
		return false, err
	}
	if ids[name] != id {
		ids[name] = id
		setIDs(n, ids)
		changed = true
	}
	for k, v := range topology {
		old, there := n.Labels[k]
		if there && old != v {
			return false, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", k, v, k, old)
		}
		if !there {
			metav1.SetMetaDataLabel(&n.ObjectMeta, k, v)
			changed = true
		}
	}
	return changed, nil
}

func removeDriver(n *corev1.Node, name string) (changed bool, err error) {
	ids, err := idsOf(n)
	if err != nil {
		return false, err
	}
	if _, there := ids[name]; !there {
		return false, nil
	}
	delete(ids, name)
	setIDs(n, ids)
	return true, nil
}

func idsOf(n *corev1.Node) (map[string]string, error) {
	ids := map[string]string{}
	if text := n.Annotations[nodeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("failed to parse node's %q annotation value (%q) err=%w", nodeIDs, text, err)
		}
	}
	return ids, nil
}

func setIDs(n *corev1.Node, ids map[string]string) {
	if len(ids) == 0 {
		delete(n.Annotations, nodeIDs)
		return
	}
	text, err := json.Marshal(ids)
	if err == nil {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, nodeIDs, string(text))
	}
}

// editNode changes the Node, with retries after conflicts.
func (d *Drivers) editNode(ctx context.Context, change func(*corev1.Node) (bool, error)) error {
	return retryConflicts(func() error {
		n, err := get[*corev1.Node](ctx, d, gr.Nodes)
		if err != nil {
			return err
		}
		changed, err := change(n)
		if !changed || err != nil {
			return err
		}
		_, err = d.Client.Update(ctx, gr.Nodes, n, "")
		return err
	})
}

// editCSINode changes the CSINode, which is created if it does not exist.
func (d *Drivers) editCSINode(ctx context.Context, change func(*storagev1.CSINode) bool) error {
	return retryConflicts(func() error {
		n, err := get[*storagev1.CSINode](ctx, d, gr.CSINodes)
		if apierrors.IsNotFound(err) {
			return d.makeCSINode(ctx, change)
		}
		if err != nil {
			return err
		}
		if !change(n) {
			return nil
		}
		_, err = d.Client.Update(ctx, gr.CSINodes, n, "")
		return err
	})
}

func (d *Drivers) makeCSINode(ctx context.Context, change func(*storagev1.CSINode) bool) error {
	node, err := d.Client.Get(ctx, gr.Nodes, "", d.Node, "")
	if err != nil {
		return err
	}
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: d.Node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: d.Node, UID: node.GetUID()}},
	}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
	change(n)
	_, err = d.Client.Create(ctx, gr.CSINodes, n)
	return err
}

// get reads the object of a resource that has the name of the node.
func get[T kind.Object](ctx context.Context, d *Drivers, on schema.GroupResource) (T, error) {
	var none T
	o, err := d.Client.Get(ctx, on, "", d.Node, "")
	if err != nil {
		return none, err
	}
	got, ok := o.(T)
	if !ok {
		return none, fmt.Errorf("got a %T", o)
	}
	return got, nil
}

// retryConflicts repeats a function while it fails because of a conflict.
func retryConflicts(f func() error) error {
	var err error
	for range maxAttempts {
		if err = f(); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return errors.Join(errors.New("others keep changing it"), err)
}
