package controllers

import (
	"testing"

	"proa.dev/control/controltest"
	"proa.dev/control/extensiontrust"
)

func TestExtensionTrust(t *testing.T) {
	t.Parallel()
	trust := extensiontrust.Trust{
		Clients: "CLIENTS", Proxies: "PROXIES", Allowed: []string{"front-proxy-client"},
		User: "X-Remote-User", UID: "X-Remote-Uid", Group: "X-Remote-Group", Extra: "X-Remote-Extra-",
	}
	controltest.Scripts(t, "../../control/extensiontrust/testdata/*.txt",
		extensiontrust.Controller(func() extensiontrust.Trust { return trust }))
}
