package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/controltest"
	"proa.dev/control/satoken"
)

func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	issue := func(a *corev1.ServiceAccount, secret string) (string, error) { return a.Name + " by " + secret, nil }
	controltest.Scripts(t, "../../control/satoken/testdata/scripts/*.txt", satoken.Tokens(issue, func() string { return "PEM" }), satoken.Cleaner(240*time.Hour), satoken.Tracker())
}
