package lookup

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is a condition as most objects have them in their status.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

// Time returns when the condition last changed; the zero time when that cannot be read.
func (c *Condition) Time() time.Time {
	at, _ := time.Parse(time.RFC3339, c.LastTransitionTime)
	return at
}

// FirstFalse returns the first of the conditions, in the order of the names, that is False; nil if none is.
func FirstFalse(conditions []Condition, names ...string) *Condition {
	for _, name := range names {
		i := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == name && c.Status == "False" })
		if i >= 0 {
			return &conditions[i]
		}
	}
	return nil
}

// IsTrue tells whether a condition is there and True.
func IsTrue(conditions []Condition, name string) bool {
	return slices.ContainsFunc(conditions, func(c Condition) bool { return c.Type == name && c.Status == "True" })
}

// Conditioned is what objects of most kinds, custom ones too, have in common. A status may have any shape: what does not follow the
// conventions is as if it were not there.
type Conditioned struct {
	metav1.ObjectMeta  `json:"metadata"`
	Status             json.RawMessage `json:"status"`
	ObservedGeneration *int64          `json:"-"`
	Phase              string          `json:"-"`
	Conditions         []Condition     `json:"-"`
}

// ReadStatus takes what follows the conventions out of the status.
func (o *Conditioned) ReadStatus() {
	var fields struct {
		ObservedGeneration json.RawMessage `json:"observedGeneration"`
		Phase              json.RawMessage `json:"phase"`
		Conditions         json.RawMessage `json:"conditions"`
	}
	if json.Unmarshal(o.Status, &fields) != nil {
		return
	}
	o.ObservedGeneration, o.Phase, o.Conditions = nil, "", nil
	var generation int64
	if len(fields.ObservedGeneration) > 0 && string(fields.ObservedGeneration) != "null" &&
		json.Unmarshal(fields.ObservedGeneration, &generation) == nil {
		o.ObservedGeneration = &generation
	}
	_ = json.Unmarshal(fields.Phase, &o.Phase) // another type than a string is no phase
	var items []json.RawMessage
	_ = json.Unmarshal(fields.Conditions, &items) // another type than a list has no conditions
	for _, item := range items {
		var c Condition
		if json.Unmarshal(item, &c) == nil && c.Type != "" {
			o.Conditions = append(o.Conditions, c)
		}
	}
}

// PodCondition returns a condition of a Pod; nil if there is none.
func PodCondition(p *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == name {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
