package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/controltest"
	"proa.dev/control/serviceaccounttoken"
)

func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	issue := func(a *corev1.ServiceAccount, secret string) (string, error) { return a.Name + " by " + secret, nil }
	controltest.Scripts(t, "../../control/serviceaccounttoken/testdata/scripts/*.txt",
		serviceaccounttoken.Tokens(issue, func() string { return "PEM" }), serviceaccounttoken.Cleaner(240*time.Hour),
		serviceaccounttoken.Tracker())
}
