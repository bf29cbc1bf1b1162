package machine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/lib/gr"
)

func keepPrefixes(file string, all []netip.Prefix) error {
	var text strings.Builder
	for _, p := range all {
		fmt.Fprintln(&text, p)
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

// annotate sets an annotation of the node's own Node.
func (p *agentHost) annotate(ctx context.Context, annotation, value string) error {
	for {
		o, err := p.client.Get(ctx, gr.Nodes, "", p.Name, "")
		if err != nil {
			return err
		}
		have, ok := o.(*corev1.Node)
		if !ok {
			return fmt.Errorf("the cluster has a %T as Node", o)
		}
		if old, has := have.Annotations[annotation]; has && old == value {
			return nil
		}
		next := have.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[annotation] = value
		if _, err = p.client.Update(ctx, gr.Nodes, next, ""); !apierrors.IsConflict(err) {
			return err
		}
	}
}
