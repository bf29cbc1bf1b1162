package run

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control/clustersettings"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/settings"
)

// publishSettings writes the ConfigMap with the settings of the cluster before any agent can read it. A controller
// keeps it up to date.
func (s *Server) publishSettings(ctx context.Context, c client.Client) error {
	o, err := c.Get(ctx, gr.ConfigMaps, metav1.NamespaceSystem, settings.ClusterSettingsName, "")
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	have, _ := o.(*corev1.ConfigMap)
	if err != nil {
		have = nil
	}
	want := clustersettings.Decide(have, s.SharedSettings())
	switch {
	case want == nil:
		return nil
	case have == nil:
		_, err = c.Create(ctx, gr.ConfigMaps, want)
	default:
		_, err = c.Update(ctx, gr.ConfigMaps, want, "")
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return nil // another server has started at the same time
	}
	return err
}
