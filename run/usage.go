package run

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/control/autoscale"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// measured is where autoscalers have their measurements from: the resource metrics API, which they ask as anybody would. The
// other two APIs of metrics are served by nobody here.
type measured struct {
	autoscale.Metrics
	list func(ctx context.Context, q autoscale.Query) ([]kind.Object, error)
}

func (s *Server) measurements() autoscale.Metrics {
	return measured{Metrics: autoscale.Absent(), list: func(ctx context.Context, q autoscale.Query) ([]kind.Object, error) {
		return s.front.Listed(ctx, account("horizontal-pod-autoscaler"), gr.PodMetrics, q.Namespace, q.Selector)
	}}
}

// Pods measures what Pods use of a resource.
func (m measured) Pods(ctx context.Context, q autoscale.Query) (map[string]autoscale.Sample, error) {
	if q.Resource == "" {
		return m.Metrics.Pods(ctx, q)
	}
	all, err := m.list(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	out := map[string]autoscale.Sample{}
	for _, o := range all {
		p := o.(*metricsv1beta1.PodMetrics)
		value, known, err := usageOf(p, q.Resource, q.Container)
		if err != nil {
			return nil, fmt.Errorf("failed to get container metrics: %w", err)
		}
		if known {
			out[p.Name] = autoscale.Sample{Value: value, At: p.Timestamp.Time, Window: p.Window.Duration}
		}
	}
	return out, nil
}

// usageOf is what the containers of a Pod use together, or one of them, in thousandths.
func usageOf(p *metricsv1beta1.PodMetrics, of corev1.ResourceName, container string) (sum int64, known bool, err error) {
	found := false
	for _, c := range p.Containers {
		if container != "" && c.Name != container {
			continue
		}
		found = true
		v, told := c.Usage[of]
		if !told {
			return 0, false, nil
		}
		sum += v.MilliValue()
	}
	if container != "" && !found {
		return 0, false, fmt.Errorf("container %s not present in metrics for pod %s/%s", container, p.Namespace, p.Name)
	}
	return sum, found, nil
}
