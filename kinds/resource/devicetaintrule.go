package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// DeviceTaintRules taint all devices that match a selector.
func DeviceTaintRules() *kind.Def {
	type rule = resourcev1.DeviceTaintRule
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return kind.Define(kind.Resource[rule]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: resourcev1.GroupName, Version: "v1", Kind: "DeviceTaintRule"},
			Plural:           "devicetaintrules", Scope: kind.Cluster,
			StorageVersion: "v1beta2", Older: kind.SameLayout("v1beta2", "v1alpha3"),
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Spec:     func(r *rule) any { return &r.Spec },
		Status:   func(r *rule) any { return &r.Status },
		Default:  func(r *rule) { defaultTaint(&r.Spec.Taint) },
		Prepare:  prepareTaintRule,
		Validate: validateTaintRule,
		Subs: []kind.Sub[rule]{{
			Name:     "status",
			Reset:    []string{"metadata", "spec"},
			Prepare:  func(r, old *rule) { metav1.ResetObjectMetaForStatus(r, old) },
			Validate: validateTaintRuleStatus,
		}},
		Columns: []kind.Column[rule]{
			kind.NameColumn[rule](),
			{Name: "Key", Description: doc["key"], Value: func(r *rule) any { return r.Spec.Taint.Key }},
			{Name: "Value", Description: doc["value"], Value: func(r *rule) any { return r.Spec.Taint.Value }},
			{Name: "Effect", Description: doc["effect"], Value: func(r *rule) any { return string(r.Spec.Taint.Effect) }},
			{Name: "TimeAdded", Description: doc["timeAdded"], Value: func(r *rule) any {
				if r.Spec.Taint.TimeAdded == nil {
					return ""
				}
				return kind.Age(*r.Spec.Taint.TimeAdded)
			}},
			kind.AgeColumn[rule](),
		},
	})
}

// prepareTaintRule sets the time of a new effect, unless the client did: toleration periods start at that time.
func prepareTaintRule(r, old *resourcev1.DeviceTaintRule) {
	if old != nil && r.Spec.Taint.Effect != old.Spec.Taint.Effect && r.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
		r.Spec.Taint.TimeAdded = new(now())
	}
}
