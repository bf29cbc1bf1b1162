package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/control/apiservice"
	"proa.dev/control/controltest"
	"proa.dev/kinds/apiregistration"
)

func TestAPIServices(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/apiservice/testdata/scripts/*.txt", apiservice.Controller(func() []*apiregistrationv1.APIService {
		return apiregistration.Local([]schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1beta1"}})
	}))
}
