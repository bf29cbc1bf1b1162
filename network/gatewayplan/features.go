package gatewayplan

import "slices"

// Features returns the features of the Gateway API that are supported, sorted, as GatewayClasses list them in their status.
func Features() []string {
	list := []string{
		"Gateway", "ReferenceGrant", "HTTPRoute", "GRPCRoute", "TLSRoute", "BackendTLSPolicy",
		"BackendTLSPolicySANValidation",
		"GatewayAddressEmpty", "GatewayBackendClientCertificate", "GatewayFrontendClientCertificateValidation",
		"GatewayFrontendClientCertificateValidationInsecureFallback", "GatewayHTTPListenerIsolation",
		"GatewayHTTPSListenerDetectMisdirectedRequests",
		"GatewayInfrastructure", "GatewayPort8080", "ListenerSet",
		"GRPCRouteNamedRouteRule",
		"HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
		"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification",
		"HTTPRouteBackendTimeout",
		"HTTPRouteCORS", "HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule",
		"HTTPRouteParentRefPort",
		"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestMirror",
		"HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout",
		"HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect",
		"TLSRouteModeMixed", "TLSRouteModeTerminate",
	}
	slices.Sort(list)
	return list
}
