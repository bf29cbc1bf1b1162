package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"proa.dev/kinds/kind"
)

// FlowSchemas sort requests into priority levels.
func FlowSchemas() *kind.Def {
	type schema = flowcontrolv1.FlowSchema
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return kind.Define(kind.Resource[schema]{
		Group: flowcontrolv1.GroupName, Version: "v1", Kind: "FlowSchema", Plural: "flowschemas", Scope: kind.Cluster,
		Spec:       func(s *schema) any { return &s.Spec },
		Status:     func(s *schema) any { return &s.Status },
		Generation: true,
		Default: func(s *schema) {
			if s.Spec.MatchingPrecedence == 0 {
				s.Spec.MatchingPrecedence = 1000
			}
		},
		Validate: validateFlowSchema,
		Subs: []kind.Sub[schema]{{
			Name:  "status",
			Reset: []string{"metadata", "spec"},
			Prepare: func(s, old *schema) {
				managed := s.ManagedFields
				s.ObjectMeta = old.ObjectMeta
				s.ManagedFields = managed
			},
			Validate: validateFlowSchemaStatus,
		}},
		Columns: []kind.Column[schema]{
			kind.NameColumn[schema](),
			{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"], Value: func(s *schema) any {
				return s.Spec.PriorityLevelConfiguration.Name
			}},
			{Name: "MatchingPrecedence", Description: doc["matchingPrecedence"], Value: func(s *schema) any { return int64(s.Spec.MatchingPrecedence) }},
			{Name: "DistinguisherMethod", Description: doc["distinguisherMethod"], Value: func(s *schema) any {
				if s.Spec.DistinguisherMethod == nil {
					return "<none>"
				}
				return string(s.Spec.DistinguisherMethod.Type)
			}},
			kind.AgeColumn[schema](),
			{Name: "MissingPL", Description: "references a broken or non-existent PriorityLevelConfiguration", Value: func(s *schema) any {
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
