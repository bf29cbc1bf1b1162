package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/controltest"
	"proa.dev/control/deployment"
	"proa.dev/control/podautoscaler"
	"proa.dev/control/replicaset"
	"proa.dev/kinds/lib/gr"
)

// queueMetric is an external metric: high in the first minutes of the year, and low afterwards.
type queueMetric struct{ podautoscaler.Metrics }

func (queueMetric) External(_ context.Context, _, metric string, _ labels.Selector) ([]int64, error) {
	if metric != "queue" {
		return nil, fmt.Errorf("unable to fetch metrics from external metrics API: no %s", metric)
	}
	if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) < 3*time.Minute {
		return []int64{40_000, 20_000}, nil
	}
	return []int64{10_000}, nil
}

func (queueMetric) Object(context.Context, string, autoscalingv2.CrossVersionObjectReference, string, labels.Selector) (int64, error) {
	return 0, nil
}

func autoscaleKinds(gk schema.GroupKind) ([]schema.GroupResource, error) {
	switch gk {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return []schema.GroupResource{gr.Deployments}, nil
	case schema.GroupKind{Group: "x.dev", Kind: "Nothing"}:
		return nil, nil
	}
	return nil, fmt.Errorf("no matches for kind %q in group %q", gk.Kind, gk.Group)
}

func TestAutoscale(t *testing.T) {
	t.Parallel()
	hpa := func() control.Controller {
		return podautoscaler.Controller(queueMetric{podautoscaler.Absent()}, autoscaleKinds, podautoscaler.Options{})
	}
	t.Run("alone", func(t *testing.T) {
		controltest.Scripts(t, "../../control/podautoscaler/testdata/scripts/alone/*.txt", hpa())
	})
	t.Run("custom", func(t *testing.T) {
		controltest.ScriptsOfServer(t, "../../control/podautoscaler/testdata/custom/*.txt", "horizontal-pod-autoscaler",
			"crd-status-controller")
	})
	t.Run("whole", func(t *testing.T) {
		controltest.Scripts(t, "../../control/podautoscaler/testdata/scripts/whole/*.txt", hpa(), deployment.Controller(),
			replicaset.Controller())
	})
}
