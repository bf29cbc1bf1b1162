package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/lib/gr"
)

// attachAnnotation says that the control plane attaches the volumes of the node.
const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// register creates the Node, or adopts an existing one, with retries.
func (n *Node) register(ctx context.Context) error {
	retry := wait.Backoff{First: firstRetry, Max: 7 * time.Second}
	for {
		err := n.tryRegister(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.log.Error("the node cannot be registered yet", "node", n.Name, "err", err)
		if retry.Sleep(ctx) != nil {
			return ctx.Err()
		}
	}
}

func (n *Node) tryRegister(ctx context.Context) error {
	have, err := n.get(ctx)
	// Some authorizers forbid a node to read a Node that does not exist yet: then it is created.
	if err == nil {
		return n.adopt(ctx, have)
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	facts := n.gatherFacts(ctx)
	first := n.newNode(facts)
	o, err := n.cluster.Create(ctx, gr.Nodes, first)
	for facts.dropRefused(first, err) {
		first = n.newNode(facts)
		o, err = n.cluster.Create(ctx, gr.Nodes, first)
	}
	if apierrors.IsAlreadyExists(err) {
		return errors.New("somebody made the Node meanwhile")
	}
	if err != nil {
		return err
	}
	made, ok := o.(*corev1.Node)
	if !ok {
		return fmt.Errorf("the cluster has made a %T as Node", o)
	}
	n.log.Info("node registered", "node", n.Name)
	n.reported = time.Now()
	n.setCurrent(made)
	n.reportRefused(facts)
	return nil
}

// newNode returns the Node as it is created.
func (n *Node) newNode(facts *Facts) *corev1.Node {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.labels(), Annotations: n.annotations()},
		Spec:       corev1.NodeSpec{ProviderID: n.ProviderID, Taints: n.taints()},
	}
	n.setProvidedIPs(o)
	describe(o, &n.Config, facts, time.Now())
	return o
}

// annotations returns the annotations that a node keeps on its Node.
func (n *Node) annotations() map[string]string {
	out := map[string]string{attachAnnotation: "true"}
	if n.Build != "" {
		out[nodekind.BuildAnnotation] = n.Build
	}
	return out
}

// labels returns the labels that every node has, and the configured ones.
func (n *Node) labels() map[string]string {
	out := map[string]string{
		corev1.LabelHostname: n.Hostname, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(out, n.Labels)
	return out
}

// managedLabels returns the labels that a node corrects on an existing Node. Others may have been changed on purpose.
func managedLabels() []string {
	return []string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceTypeStable, corev1.LabelInstanceType, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os",
		"beta.kubernetes.io/arch",
	}
}

// adopt uses an existing Node of the same name.
func (n *Node) adopt(ctx context.Context, have *corev1.Node) error {
	next := have.DeepCopy()
	wrong := reconcile(next, n.labels(), n.annotations())
	if n.setProvidedIPs(next) || wrong {
		o, err := n.cluster.Update(ctx, gr.Nodes, next, "")
		if err != nil {
			return fmt.Errorf("correct the labels and annotations of the Node: %w", err)
		}
		if stored, ok := o.(*corev1.Node); ok {
			have = stored
		}
	}
	n.log.Info("node was registered before", "node", n.Name)
	n.adopted = true
	n.setCurrent(have)
	return nil
}

// reconcile corrects labels and annotations, and reports whether any was wrong.
func reconcile(o *corev1.Node, labels, annotations map[string]string) (changed bool) {
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	for _, name := range managedLabels() {
		want, given := labels[name]
		have, has := o.Labels[name]
		switch {
		case !given || have == want && has:
		case want == "":
			delete(o.Labels, name)
			changed = changed || has
		default:
			o.Labels[name] = want
			changed = true
		}
	}
	for name, want := range annotations {
		if o.Annotations[name] != want {
			if o.Annotations == nil {
				o.Annotations = map[string]string{}
			}
			o.Annotations[name] = want
			changed = true
		}
	}
	return changed
}
