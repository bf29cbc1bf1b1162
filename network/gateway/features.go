package gateway

import "slices"

// Features are the features of the standard that are served here, as GatewayClasses tell them; sorted.
func Features() []string {
	list := []string{
		"Gateway", "ReferenceGrant", "HTTPRoute", "GRPCRoute", "TLSRoute", "BackendTLSPolicy",
		"BackendTLSPolicySANValidation",
		"GatewayAddressEmpty", "GatewayBackendClientCertificate", "GatewayFrontendClientCertificateValidation",
		"GatewayFrontendClientCertificateValidationInsecureFallback", "GatewayHTTPListenerIsolation", "GatewayHTTPSListenerDetectMisdirectedRequests",
		"GatewayInfrastructure", "GatewayPort8080", "ListenerSet",
		"GRPCRouteNamedRouteRule",
		"HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
		"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteBackendTimeout",
		"HTTPRouteCORS", "HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort",
		"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestMirror",
		"HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect",
		"TLSRouteModeMixed", "TLSRouteModeTerminate",
	}
	slices.Sort(list)
	return list
}
