package apiservice

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/apiregistration"
)

func TestDecide(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	custom := apiregistration.Custom(gv)
	builtIn := apiregistration.Local([]schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1beta1"}})[0]
	manual := apiregistration.Custom(gv)
	manual.Labels = nil
	manual.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "a", Name: "b"}
	edited := custom.DeepCopy()
	edited.Spec.VersionPriority = 7
	replaced := builtIn.DeepCopy()
	replaced.Spec.Service = manual.Spec.Service
	for name, c := range map[string]struct {
		stored, desired *apiregistrationv1.APIService
		want            action
	}{
		"neither stored nor desired":                   {nil, nil, nothing},
		"a definition is new":                          {nil, custom, create},
		"nothing to change":                            {custom, custom, nothing},
		"the last definition is gone":                  {custom, nil, remove},
		"a user has changed it":                        {edited, custom, update},
		"an administrator serves the group elsewhere":  {manual, custom, nothing},
		"served elsewhere, without a definition":       {manual, nil, nothing},
		"a built-in one was deleted":                   {nil, builtIn, create},
		"a built-in group is served by another server": {replaced, builtIn, nothing},
		"a built-in one of a group that is not served": {builtIn, nil, nothing},
	} {
		if got := decide(c.stored, c.desired); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
