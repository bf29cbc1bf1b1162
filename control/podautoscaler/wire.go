package podautoscaler

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/kinds/lib/quantity"
)

// defaultWindow is the window of a value whose server does not state it.
const defaultWindow = time.Minute

// metricValueList is a list of custom or external metrics in any version. The versions differ in fields that an autoscaler
// does not read, and in the name of the window.
type metricValueList struct {
	metav1.TypeMeta `json:",inline"`

	Items []metricValue `json:"items"`
}

type metricValue struct {
	DescribedObject struct {
		Name string `json:"name"`
	} `json:"describedObject"`
	Timestamp     metav1.Time    `json:"timestamp"`
	Window        *int64         `json:"window"`
	WindowSeconds *int64         `json:"windowSeconds"`
	Value         parsedQuantity `json:"value"`
}

func (v *metricValue) window() time.Duration {
	for _, seconds := range []*int64{v.WindowSeconds, v.Window} {
		if seconds != nil {
			return time.Duration(min(max(*seconds, 0), math.MaxInt64/int64(time.Second))) * time.Second
		}
	}
	return defaultWindow
}

// podMetricsList is a list of the usage of Pods.
type podMetricsList struct {
	metav1.TypeMeta `json:",inline"`

	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Timestamp  metav1.Time     `json:"timestamp"`
		Window     metav1.Duration `json:"window"`
		Containers []struct {
			Name  string                                 `json:"name"`
			Usage map[corev1.ResourceName]parsedQuantity `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// podMetrics converts the list to the types of the metrics API.
func (l *podMetricsList) podMetrics() []metricsv1beta1.PodMetrics {
	out := make([]metricsv1beta1.PodMetrics, len(l.Items))
	for i := range l.Items {
		p := &l.Items[i]
		out[i].Name, out[i].Timestamp, out[i].Window = p.Metadata.Name, p.Timestamp, p.Window
		for _, c := range p.Containers {
			usage := make(corev1.ResourceList, len(c.Usage))
			for name, q := range c.Usage {
				usage[name] = q.Quantity
			}
			out[i].Containers = append(out[i].Containers, metricsv1beta1.ContainerMetrics{Name: c.Name, Usage: usage})
		}
	}
	return out
}

// parsedQuantity is a quantity from another server.
type parsedQuantity struct{ resource.Quantity }

// UnmarshalJSON parses a string or a number.
func (r *parsedQuantity) UnmarshalJSON(text []byte) error {
	if err := quantity.Check(string(text)); err != nil {
		return err
	}
	return r.Quantity.UnmarshalJSON(text)
}
