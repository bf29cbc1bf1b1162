package authz

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Lister is an optional interface of authorizers that can list what a user may do in a namespace. incomplete says that
// the user may be allowed more than is listed.
type Lister interface {
	List(u user.Info, namespace string) (rules []rbacv1.PolicyRule, incomplete bool, err error)
}

// ReviewRules answers a SelfSubjectRulesReview, which "kubectl auth can-i --list" shows: the rules of all authorizers of the
// chain that can list them. The slices inside belong to the roles and must not be changed.
func (c Chain) ReviewRules(u user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	// Clients expect empty lists, not null.
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	var errs []error
	for i := range c {
		lister, ok := c[i].Authorizer.(Lister)
		if !ok {
			continue
		}
		rules, incomplete, err := lister.List(u, namespace)
		status.Incomplete = status.Incomplete || incomplete
		if err != nil {
			errs = append(errs, err)
		}
		appendRules(&status, rules)
	}
	if err := aggregate(errs); err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

// appendRules splits rules into those for resources and those for URLs; one rule may be for both.
func appendRules(status *authorizationv1.SubjectRulesReviewStatus, rules []rbacv1.PolicyRule) {
	for i := range rules {
		rule := &rules[i]
		if len(rule.Resources) > 0 {
			status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs:         rule.Verbs,
				APIGroups:     rule.APIGroups,
				Resources:     rule.Resources,
				ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs:           rule.Verbs,
				NonResourceURLs: rule.NonResourceURLs,
			})
		}
	}
}

// List implements Lister. The list is complete.
func (r *RBAC) List(u user.Info, namespace string) ([]rbacv1.PolicyRule, bool, error) {
	rules, err := r.RulesFor(u, namespace)
	return rules, false, err
}
