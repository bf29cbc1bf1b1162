package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// FlowSchemas classify requests into priority levels.
func FlowSchemas() *kind.Def {
	type flowSchema = flowcontrolv1.FlowSchema
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return kind.Define(kind.Resource[flowSchema]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: flowcontrolv1.GroupName, Version: "v1", Kind: "FlowSchema"},
			Plural:           "flowschemas", Scope: kind.Cluster,
			Generation: true,
		},
		Spec:   func(s *flowSchema) any { return &s.Spec },
		Status: func(s *flowSchema) any { return &s.Status },
		Default: func(s *flowSchema) {
			if s.Spec.MatchingPrecedence == 0 {
				s.Spec.MatchingPrecedence = 1000
			}
		},
		Validate: validateFlowSchema,
		Subs: []kind.Sub[flowSchema]{{
			Name:  "status",
			Reset: []string{"metadata", "spec"},
			Prepare: func(s, old *flowSchema) {
				managed := s.ManagedFields
				s.ObjectMeta = old.ObjectMeta
				s.ManagedFields = managed
			},
			Validate: validateFlowSchemaStatus,
		}},
		Columns: []kind.Column[flowSchema]{
			kind.NameColumn[flowSchema](),
			{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"],
				Value: func(s *flowSchema) any {
					return s.Spec.PriorityLevelConfiguration.Name
				}},
			{Name: "MatchingPrecedence", Description: doc["matchingPrecedence"],
				Value: func(s *flowSchema) any { return int64(s.Spec.MatchingPrecedence) }},
			{Name: "DistinguisherMethod", Description: doc["distinguisherMethod"], Value: func(s *flowSchema) any {
				if s.Spec.DistinguisherMethod == nil {
					return "<none>"
				}
				return string(s.Spec.DistinguisherMethod.Type)
			}},
			kind.AgeColumn[flowSchema](),
			{Name: "MissingPL", Description: "references a broken or non-existent PriorityLevelConfiguration",
				Value: func(s *flowSchema) any {
					for _, c := range s.Status.Conditions {
						if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
							return string(c.Status)
						}
					}
					return "?"
				}},
		},
	})
}
