//go:build tools

package gateway

import _ "sigs.k8s.io/gateway-api/conformance/echo-basic"
