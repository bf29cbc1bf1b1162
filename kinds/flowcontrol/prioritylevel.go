package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// PriorityLevelConfigurations divide the capacity of the server among classes of requests.
func PriorityLevelConfigurations() *kind.Def {
	type level = flowcontrolv1.PriorityLevelConfiguration
	queuing := flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return kind.Define(kind.Resource[level]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: flowcontrolv1.GroupName, Version: "v1", Kind: "PriorityLevelConfiguration"},
			Plural:           "prioritylevelconfigurations", Scope: kind.Cluster,
			Generation: true,
		},
		Spec:     func(l *level) any { return &l.Spec },
		Status:   func(l *level) any { return &l.Status },
		Default:  defaultPriorityLevel,
		Validate: validatePriorityLevel,
		Subs: []kind.Sub[level]{{
			Name:  "status",
			Reset: []string{"spec", "metadata"},
			Prepare: func(l, old *level) {
				managed := l.ManagedFields
				l.ObjectMeta = old.ObjectMeta
				l.ManagedFields = managed
			},
			Validate: validatePriorityLevelStatus,
		}},
		Columns: []kind.Column[level]{
			kind.NameColumn[level](),
			{Name: "Type", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"],
				Value: func(l *level) any { return string(l.Spec.Type) }},
			{Name: "NominalConcurrencyShares",
				Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"],
				Value: func(l *level) any {
					if l.Spec.Limited == nil {
						return "<none>"
					}
					if l.Spec.Limited.NominalConcurrencyShares == nil {
						return int32(0)
					}
					return *l.Spec.Limited.NominalConcurrencyShares
				}},
			queueColumn("Queues", queuing["queues"], func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues }),
			queueColumn("HandSize", queuing["handSize"], func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize }),
			queueColumn("QueueLengthLimit", queuing["queueLengthLimit"],
				func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit }),
			kind.AgeColumn[level](),
		},
	})
}

func queueColumn(name, doc string,
	value func(*flowcontrolv1.QueuingConfiguration) int32) kind.Column[flowcontrolv1.PriorityLevelConfiguration] {
	return kind.Column[flowcontrolv1.PriorityLevelConfiguration]{Name: name, Description: doc,
		Value: func(l *flowcontrolv1.PriorityLevelConfiguration) any {
			if l.Spec.Limited == nil || l.Spec.Limited.LimitResponse.Queuing == nil {
				return "<none>"
			}
			return value(l.Spec.Limited.LimitResponse.Queuing)
		}}
}

func defaultPriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if e := l.Spec.Exempt; e != nil {
		e.NominalConcurrencyShares = orDefault(e.NominalConcurrencyShares, 0)
		e.LendablePercent = orDefault(e.LendablePercent, 0)
	}
	limited := l.Spec.Limited
	if limited == nil {
		return
	}
	limited.NominalConcurrencyShares = orDefault(limited.NominalConcurrencyShares, 30)
	limited.LendablePercent = orDefault(limited.LendablePercent, 0)
	if q := limited.LimitResponse.Queuing; q != nil {
		for _, n := range []struct {
			field *int32
			value int32
		}{{&q.HandSize, 8}, {&q.Queues, 64}, {&q.QueueLengthLimit, 50}} {
			if *n.field == 0 {
				*n.field = n.value
			}
		}
	}
}

func orDefault(p *int32, otherwise int32) *int32 {
	if p == nil {
		return new(otherwise)
	}
	return p
}
